"""Faults to choose from: five steps on real ranks, with a fault on one rank in the third step."""

import math
import os
import signal
import time
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

__all__ = ["FAULTS", "diagnose", "five_steps"]

STEPS, AT_STEP, SLOW_S = 5, 2, 0.5  # AT_STEP counts from 0
Step = tuple[float, bool, bool]  # seconds waited in the all-reduce, own gradient finite, sum finite


def _raise_error(grad: torch.Tensor) -> None:
    raise RuntimeError("a bug on one rank only")


def _kill(grad: torch.Tensor) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop(grad: torch.Tensor) -> torch.Tensor:
    os.kill(os.getpid(), signal.SIGSTOP)
    return grad


def _slow(grad: torch.Tensor) -> torch.Tensor:
    time.sleep(SLOW_S)
    return grad


def _mismatch(grad: torch.Tensor) -> torch.Tensor:
    return grad[:-1].clone()


def _skip(grad: torch.Tensor) -> None:
    return None  # no gradient: no all-reduce


def _not_a_number(grad: torch.Tensor) -> torch.Tensor:
    return grad * math.nan


FAULTS: dict[str, Callable[[torch.Tensor], torch.Tensor | None]] = {
    "raise: an exception on one rank": _raise_error,
    "kill: one rank is killed": _kill,
    "stop: one rank is stopped, but not ended": _stop,
    "slow: one rank sleeps half a second": _slow,
    "size: one rank reduces a shorter tensor": _mismatch,
    "skip: one rank leaves out a collective": _skip,
    "NaN: one gradient is not a number": _not_a_number,
}


def five_steps(fault: str, at_fault: int = 1) -> list[Step]:
    """All-reduce a gradient five times on the ranks, with the fault of that name on rank `at_fault` in the third step.

    Returns (seconds waited in the all-reduce, own gradient finite, sum finite) for each completed step.
    """
    done: list[Step] = []
    for step in range(STEPS):
        good = torch.full((1000,), 1.0 + dist.get_rank())
        grad = FAULTS[fault](good) if step == AT_STEP and dist.get_rank() == at_fault else good
        if grad is None:
            continue
        own_finite = bool(grad.isfinite().all())
        began = time.perf_counter()
        dist.all_reduce(grad)
        done.append((time.perf_counter() - began, own_finite, bool(grad.isfinite().all())))
    return done


def diagnose(results: Sequence[Sequence[Step]]) -> str:
    """Explain in words the results of `five_steps` on all ranks: no rank failed, but one may have had a fault."""
    for step in range(min(map(len, results))):
        own = [finite for _, finite, _ in (done[step] for done in results)]
        if not all(own):
            rank = own.index(False)
            return (
                f"rank {rank} contributed a gradient that is not finite to step {step + 1}; after the all-reduce every "
                "rank had it. No rank failed: check gradients before you send them."
            )
    waited = [[done[step][0] for done in results] for step in range(STEPS)]
    step = max(range(STEPS), key=lambda s: max(waited[s]) - min(waited[s]))
    most, rank = max(waited[step]), waited[step].index(min(waited[step]))
    if most > SLOW_S / 2:
        return (
            f"rank {rank} was last in step {step + 1}, and the others waited {most:.2f} s for it. No rank failed: one "
            "slow rank slows all ranks down."
        )
    return "all ranks completed all steps, and none waited long."
