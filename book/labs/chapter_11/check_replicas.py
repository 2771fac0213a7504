"""`check_replicas`: whether the parameters of several devices are copies of each other, and share no memory."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from d2lite.collectives.tensor_checks import check_memory
from ddp_rehearsal.tolerances import replica_drift_rtol

from .replica_drift import replica_drift
from .verdict import Verdict

__all__ = ["check_replicas", "judge_replicas"]


def check_replicas(device_params: Sequence[Sequence[torch.Tensor]]) -> Verdict:
    """Print and return whether replicas are copies: equal, and each in its own memory.

    Call it after `replicate`, and again between steps. The name of the verdict is one of: "copies"; "equal up to
    rounding"; "aliased replicas" (two share memory, so an update of one is an update of the other); "different
    replicas" (with how far apart they are, and where the difference is largest); and "different shapes".

    Args:
        device_params: one list of parameters per device.

    Raises:
        TypeError: if device_params is not a list of lists of tensors.
        ValueError: if there is no device, or a device without parameters.

    Example:
        >>> params = [torch.ones(2), torch.zeros(3)]
        >>> check_replicas([params, params]).passed
        aliased replicas: parameter 0 of replica 0 and of replica 1 are in the same memory. An update of one is an \
update of the other. Copy them: p.to(device, copy=True).
        False
    """
    verdict = judge_replicas(device_params)
    print(verdict)
    return verdict


def judge_replicas(device_params: Any) -> Verdict:
    """Return the verdict of `check_replicas` without printing it."""
    _check(device_params)
    shapes = [[(tuple(p.shape), p.dtype) for p in params] for params in device_params]
    for rank, own in enumerate(shapes):
        if own != shapes[0]:
            return Verdict(False, "different shapes", f"{_other_shape(shapes[0], own, rank)} All need the same shapes.")
    if shared := _shared(device_params):
        (rank, i), (other, j) = shared
        where = f"parameter {i} of replica {rank} and " + ("" if i == j else f"parameter {j} ") + f"of replica {other}"
        words = f"{where} are in the same memory. An update of one is an update of the other."
        return Verdict(False, "aliased replicas", f"{words} Copy them: p.to(device, copy=True).")
    k = len(device_params)
    if _are_bit_equal(device_params):
        return Verdict(True, "copies", f"{k} replicas are equal, bit for bit, and share no memory.")
    drift = replica_drift(device_params)
    if drift <= min(replica_drift_rtol(dtype) for _, dtype in shapes[0]):
        return Verdict(True, "equal up to rounding", f"{k} replicas differ by {drift:.0e} of their weights.")
    rank, i, most = _farthest_element(device_params)
    size = f"{drift:.2g} of their weights" if math.isfinite(drift) else "numbers that are not finite"
    return Verdict(
        False,
        "different replicas",
        f"they differ by {size}, most in parameter {i} of replica {rank} (by {most:.2g}). "
        "Before the first step: they did not begin as copies. After a step: their gradients were not the same.",
    )


def _check(device_params: Any) -> None:
    is_nested = isinstance(device_params, (list, tuple)) and all(isinstance(p, (list, tuple)) for p in device_params)
    if not is_nested or any(not isinstance(p, torch.Tensor) for params in device_params for p in params):
        got = f"{type(device_params).__name__}"
        raise TypeError(f"device_params: expected one list of tensors per device, got {got}. See replicate(...).")
    if not device_params or not all(device_params):
        raise ValueError("device_params: expected at least one device, each with parameters. See replicate(...).")


def _other_shape(first: list[Any], own: list[Any], rank: int) -> str:
    if len(own) != len(first):
        return f"replica {rank} has {len(own)} parameters, and replica 0 has {len(first)}."
    i = next(i for i, (a, b) in enumerate(zip(first, own, strict=True)) if a != b)
    said = [f"{list(shape)} ({str(dtype).removeprefix('torch.')})" for shape, dtype in (own[i], first[i])]
    return f"parameter {i} of replica {rank} is {said[0]}, and that of replica 0 is {said[1]}."


def _shared(device_params: Any) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Return (replica, parameter) of two tensors of different replicas that share memory, or None.

    Replicas may be parts of one buffer: then they have one storage, and no memory in common.
    """
    in_storage: dict[Any, list[tuple[int, int]]] = {}
    for rank, params in enumerate(device_params):
        for i, param in enumerate(params):
            if param.numel() == 0:
                continue
            others = in_storage.setdefault((param.device, param.untyped_storage().data_ptr()), [])
            for other, j in others:
                if other != rank and _overlap(device_params[other][j].detach(), param.detach()):
                    return (other, j), (rank, i)
            others.append((rank, i))
    return None


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    try:
        check_memory([one, other], ["one", "other"])
    except ValueError:
        return True
    return False


def _are_bit_equal(device_params: Any) -> bool:
    """Return whether all replicas hold the same bits, NaN and inf included."""
    return all(
        torch.equal(_bits(p), _bits(q.to(p.device)))
        for params in device_params[1:]
        for p, q in zip(device_params[0], params, strict=True)
    )


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return (
        tensor.detach().contiguous().view(torch.uint8) if tensor.dim() else tensor.detach().reshape(1).view(torch.uint8)
    )


def _farthest_element(device_params: Any) -> tuple[int, int, float]:
    """Return (replica, parameter, difference) of the element that is farthest from that of replica 0."""
    found = [
        (float((q.detach().to(p.device) - p.detach()).abs().max().double().nan_to_num(math.inf)), rank, i)
        for rank, params in enumerate(device_params)
        for i, (p, q) in enumerate(zip(device_params[0], params, strict=True))
        if p.numel()
    ]
    most, rank, i = max(found, key=lambda entry: entry[0])
    return rank, i, most
