"""What a process group of NCCL refuses, in the words of PyTorch's ProcessGroupNCCL; and means of whole numbers."""

from typing import Any

import torch
import torch.distributed as dist

from ddp_rehearsal.pretend_gpus.legacy_types import dtype_name
from ddp_rehearsal.pretend_gpus.storages import device_of, each_tensor

__all__ = ["ON_CPU", "check_for_nccl", "reduced_whole_numbers", "reduces_whole_numbers"]

ON_CPU = "No backend type associated with device type cpu"
DENSE = "Tensors must be CUDA and dense"
SPARSE = "NCCL does not support all_reduce with sparse tensors. Please use dense tensors instead."
CONTIGUOUS = "Tensors must be contiguous"
TYPE = "invalid tensor type at index 0 (expected device=cuda, got device=cpu)"
NO_OP = "Cannot use ReduceOp.{} with NCCL"
NO_DTYPE = "Input tensor data type is not supported for NCCL process group: {}"
NO_DTYPES = (torch.int16, *(getattr(torch, name) for name in ("uint16", "uint32", "uint64") if hasattr(torch, name)))
BITS = ("BAND", "BOR", "BXOR")
TO_ONE_TENSOR = "all_gather_into_tensor all_gather_single".split()
FROM_ONE_TENSOR = "reduce_scatter_tensor reduce_scatter_single".split()
ANY_LAYOUT = ["send", "recv", "isend", "irecv", *FROM_ONE_TENSOR]
PARTLY_ON_CPU: dict[str, tuple[type[Exception], str]] = {  # some of the tensors are on a GPU; the others say DENSE
    "reduce_scatter": (RuntimeError, "CUDAGuardImpl initialized with non-CUDA DeviceType: cpu"),
    "gather": (ValueError, f"ProcessGroupNCCL::gather: {TYPE}"),
    "scatter": (ValueError, f"ProcessGroupNCCL::scatter: {TYPE}"),
}


def check_for_nccl(name: str, given: dict[str, Any], n_ranks: int) -> None:
    """Raise what NCCL does for the arguments `given` to a collective; one of their tensors at least is on a GPU.

    What `all_gather` fills may be on the CPU: PyTorch copies to it. The types of the errors are PyTorch's.
    """
    tensors = list(each_tensor([given]))
    whole = [value for value in given.values() if isinstance(value, torch.Tensor)]  # not in a list
    if name == "all_gather" and any(device_of(t).type == "cpu" for t in whole):
        raise RuntimeError(ON_CPU)
    if name != "all_gather" and any(device_of(t).type == "cpu" for t in tensors):
        kind, text = PARTLY_ON_CPU.get(name, (ValueError, DENSE))
        raise kind(text)
    if any(t.layout is not torch.strided for t in tensors):
        raise RuntimeError(SPARSE) if name == "all_reduce" else ValueError(DENSE)
    if name not in ANY_LAYOUT and not all(_is_contiguous(t) for t in (tensors if name == "all_to_all" else whole)):
        raise ValueError(CONTIGUOUS)
    for t in tensors:
        if t.dtype in NO_DTYPES:
            raise TypeError(NO_DTYPE.format(dtype_name(t)))
    for op in BITS:
        if given.get("op") == getattr(dist.ReduceOp, op):
            raise ValueError(NO_OP.format(op))
    if name in TO_ONE_TENSOR and len(whole) == 2:
        _check_sizes(whole[0], whole[1], n_ranks)
    elif name in FROM_ONE_TENSOR and len(whole) == 2:
        _check_parts(whole[0], whole[1], n_ranks)


def _is_contiguous(t: torch.Tensor) -> bool:
    """As `is_contiguous(suggest_memory_format())`: images may have their channels last."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(t.dim())
    return t.is_contiguous() or (last is not None and t.is_contiguous(memory_format=last))


def _check_sizes(output: torch.Tensor, own: torch.Tensor, n_ranks: int) -> None:
    if output.dtype != own.dtype:
        raise TypeError("output tensor must have the same type as input tensor")
    if output.numel() != own.numel() * n_ranks:
        raise ValueError("output tensor size must be equal to world_size times input tensor size")


def _check_parts(output: torch.Tensor, all_parts: torch.Tensor, n_ranks: int) -> None:
    if output.dtype != all_parts.dtype:
        raise TypeError("input tensor must be the same type as the output tensor.")
    if all_parts.numel() != output.numel() * n_ranks:
        raise ValueError("input tensor must be the same size as output size times world size")


def reduces_whole_numbers(given: dict[str, Any]) -> bool:
    """Return whether these are the arguments to a mean of whole numbers, which gloo refuses."""
    tensors = list(each_tensor([given]))
    return given.get("op") == dist.ReduceOp.AVG and not any(t.is_floating_point() or t.is_complex() for t in tensors)


def reduced_whole_numbers(function: Any, given: dict[str, Any], n_ranks: int) -> Any:
    """Call a collective that takes means of whole numbers; they are cut off towards zero.

    So NCCL divides (FuncSumPostDiv in its sources). A real GPU was seen to take such tensors, on one rank.
    """
    if any(t.dtype is torch.bool for t in each_tensor([given])):
        raise TypeError("Cannot use ReduceOp.AVG with boolean inputs")
    work = function(**{**given, "op": dist.ReduceOp.SUM})
    if work is not None:
        work.wait()
    next(each_tensor([given])).div_(n_ranks, rounding_mode="trunc")  # the first argument is the output
    return work
