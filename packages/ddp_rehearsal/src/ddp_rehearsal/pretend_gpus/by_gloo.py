"""What NCCL sends and gloo does not, made of what gloo sends; a call that is asynchronous is done when it returns."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from ddp_rehearsal.pretend_gpus.storages import each_tensor

__all__ = ["for_gloo"]

c10d: Any = dist.distributed_c10d
Function = Callable[..., Any]  # of torch.distributed
Given = dict[str, Any]  # the arguments to it
ONE_TENSOR = (
    "all_gather_into_tensor all_gather_single reduce_scatter_tensor reduce_scatter_single gather_into_tensor "
    "gather_single"
).split()  # for gloo the shapes must be alike, for NCCL the numbers in memory


def for_gloo(function: Function, given: Given) -> Any:
    """Call a collective with the arguments that NCCL would take; it returns what PyTorch returns."""
    name = function.__name__
    if name in ONE_TENSOR and all(_is_dense(t) for t in each_tensor([given])):
        return function(**{name: _flat(value) for name, value in given.items()})
    if name == "all_gather" and _are_unequal(given["tensor_list"]):
        return _all_gather(given)
    if name == "all_to_all":
        return _all_to_all(given)
    return function(**given)


def _is_dense(t: torch.Tensor) -> bool:
    """Return whether a tensor has no gaps in memory, whatever the order of its dimensions."""
    return not t.numel() or 1 + sum((n - 1) * step for n, step in zip(t.shape, t.stride(), strict=True)) == t.numel()


def _flat(value: Any) -> Any:
    """Return the memory of a tensor as one row of numbers, and anything else as it is."""
    is_tensor = isinstance(value, torch.Tensor)
    return value.detach().as_strided((value.numel(),), (1,)) if is_tensor else value


def _are_unequal(tensors: Any) -> bool:
    return len({t.shape for t in each_tensor([tensors])}) > 1


def _all_gather(given: Given) -> Any:
    """Parts of several sizes are broadcast one by one, as by NCCL."""
    group, work = given.get("group"), None
    for rank, part in enumerate(given["tensor_list"]):
        if rank == dist.get_rank(group):
            part.copy_(given["tensor"])
        work = c10d.broadcast(part, group=group, group_src=rank, async_op=True)
        work.wait()
    return work if given.get("async_op") else None


def _all_to_all(given: Given) -> Any:
    """gloo sends parts of several sizes from one tensor into another one."""
    outputs, inputs = lists = given["output_tensor_list"], given["input_tensor_list"]
    for tensors, name in zip(lists, ("output_tensor_list", "input_tensor_list"), strict=True):
        c10d._check_tensor_list(tensors, name)
    c10d._ensure_all_tensors_same_dtype(outputs, inputs)
    sent = torch.cat([part.reshape(-1) for part in inputs])
    sizes = [[part.numel() for part in tensors] for tensors in lists]
    received = sent.new_empty(sum(sizes[0]))
    work = c10d.all_to_all_single(received, sent, *sizes, group=given.get("group"), async_op=True)
    work.wait()
    for part, found in zip(outputs, received.split(sizes[0]), strict=True):
        part.copy_(found.view_as(part))
    return work if given.get("async_op") else None
