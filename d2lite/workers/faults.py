"""Faults to order: five steps on real ranks, in the third of which one rank does something wrong."""

import math
import os
import signal
import time

import torch
import torch.distributed as dist

__all__ = ["FAULTS", "diagnose", "five_steps"]

STEPS, AT_STEP, SLOW_S = 5, 2, 0.5  # AT_STEP counts from 0


def _raise_error(grad):
    raise RuntimeError("a bug that only one rank meets")


def _kill(grad):
    os.kill(os.getpid(), signal.SIGKILL)


def _stop(grad):
    os.kill(os.getpid(), signal.SIGSTOP)
    return grad


def _slow(grad):
    time.sleep(SLOW_S)
    return grad


def _mismatch(grad):
    return grad[:-1].clone()


def _skip(grad):
    return None


def _not_a_number(grad):
    return grad * math.nan


FAULTS = {
    "raise: an exception on one rank": _raise_error,
    "kill: one rank is killed": _kill,
    "stop: one rank is stopped, but not ended": _stop,
    "slow: one rank sleeps half a second": _slow,
    "size: one rank reduces a shorter tensor": _mismatch,
    "skip: one rank leaves out a collective": _skip,
    "NaN: one gradient is not a number": _not_a_number,
}


def five_steps(fault, at_fault=1):
    """On a rank: all-reduce a gradient five times, with the fault of that name on rank `at_fault` in the third.

    Returns a list of (seconds waited in the all-reduce, own gradient finite, sum finite), one a step that was done.
    """
    done = []
    for step in range(STEPS):
        grad = torch.full((1000,), 1.0 + dist.get_rank())
        if step == AT_STEP and dist.get_rank() == at_fault:
            grad = FAULTS[fault](grad)
            if grad is None:
                continue
        own_finite = bool(grad.isfinite().all())
        began = time.perf_counter()
        dist.all_reduce(grad)
        done.append((time.perf_counter() - began, own_finite, bool(grad.isfinite().all())))
    return done


def diagnose(results):
    """Return one sentence for what the ranks of `five_steps` brought back: nobody failed, yet all may not be well."""
    for step in range(min(map(len, results))):
        own = [finite for _, finite, _ in (done[step] for done in results)]
        if not all(own):
            rank = own.index(False)
            return (
                f"rank {rank} put a gradient that is not finite into step {step + 1}; after the all-reduce every rank "
                "had it. Nobody failed: check gradients before you send them."
            )
    waited = [[done[step][0] for done in results] for step in range(STEPS)]
    step = max(range(STEPS), key=lambda s: max(waited[s]) - min(waited[s]))
    most, rank = max(waited[step]), waited[step].index(min(waited[step]))
    if most > SLOW_S / 2:
        return (
            f"rank {rank} came last to step {step + 1}, and the others waited {most:.2f} s for it. Nobody failed: a "
            "slow rank makes all ranks slow."
        )
    return "all ranks did all steps, and nobody waited long."
