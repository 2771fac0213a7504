"""The bytes that a training step holds on a GPU: parameters, gradients, state, and what an update needs besides."""

import gc
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from ddp_rehearsal.pretend_gpus.storages import device_of

__all__ = ["bytes_of", "bytes_of_update", "most_held", "parameters_on_gpus"]


def bytes_of(tensors: Sequence[torch.Tensor]) -> int:
    """Return the bytes of the tensors, of a sharded one those of this rank's shard."""
    local = [getattr(t, "_local_tensor", t) for t in tensors]
    return sum(t.numel() * t.element_size() for t in local)


def bytes_of_update(optimizer: torch.optim.Optimizer) -> int:
    """Return what an update of Adam or one of its relatives needs besides its state; 0 for any other optimizer.

    On a GPU the update of all parameters at once takes as many bytes as they have (PyTorch, "torch.optim.Adam", on
    `foreach`); of one parameter after the other, twice those of the largest; a fused update takes none.
    """
    most = 0
    for group in optimizer.param_groups:
        mine = group["params"]
        if group.get("fused") or not any("exp_avg_sq" in optimizer.state.get(p, {}) for p in mine):
            continue
        at_once = group.get("foreach")
        if at_once is None:  # PyTorch's choice for parameters on a GPU
            at_once = all(type(p) in (torch.Tensor, nn.Parameter) for p in mine)
        most = max(most, bytes_of(mine) if at_once else 2 * max(bytes_of([p]) for p in mine))
    return most


def parameters_on_gpus() -> list[nn.Parameter]:
    """Return the parameters on GPUs of all modules of this process, also of those that are never called.

    A moving average of the weights is not, and an encoder may be used by `encode()`.
    """
    modules = [found for found in gc.get_objects() if issubclass(type(found), nn.Module)]
    params = {id(p): p for module in modules for p in vars(module).get("_parameters", {}).values() if p is not None}
    return [p for p in params.values() if not is_lazy(p) and device_of(p).type == "cuda"]


def most_held(parameters: int, gradients: int, optimizer: int, activations: int, update: int) -> int:
    """Return the bytes at the peak of a step: activations (-1: not known) are gone when the update begins.

    Example:
        >>> most_held(100, 100, 200, 30, 50)
        450
    """
    return parameters + gradients + optimizer + max(activations, update, 0)
