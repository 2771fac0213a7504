"""Optimizers that compute with lists of tensors: one list for each pretend GPU."""

import importlib
from typing import Any

from ddp_rehearsal.pretend_gpus.storages import device_of

__all__ = ["pretend_optimizers"]

Groups = dict[Any, tuple[list[list[Any]], list[int]]]


def _grouped(lists: list[list[Any]], with_indices: bool = False) -> Groups:
    """Return {(device, dtype): (the lists with these tensors alone, their indices)}, as PyTorch's C++ function does."""
    groups: Groups = {}
    for i, first in enumerate(lists[0]):
        mine, indices = groups.setdefault((device_of(first), first.dtype), ([[] for _ in lists], []))
        indices.append(i)
        for own, given in zip(mine, lists, strict=True):
            if given:
                own.append(given[i])
    return groups


def pretend_optimizers() -> None:
    """Group tensors by their pretend GPU; PyTorch's C++ would take all for one group."""
    for name in ("torch.utils._foreach_utils", "torch.optim.optimizer", "torch.nn.utils.clip_grad"):
        module: Any = importlib.import_module(name)
        module._group_tensors_by_device_and_dtype = _grouped
