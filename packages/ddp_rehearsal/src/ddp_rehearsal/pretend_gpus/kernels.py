"""Functions for which PyTorch has no kernel on a GPU for some dtype, though the CPU has one."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ddp_rehearsal.pretend_gpus.legacy_types import dtype_name
from ddp_rehearsal.pretend_gpus.storages import each_tensor

__all__ = ["PRODUCTS", "call_without_integers"]

# functions that multiply matrices, by one of the operators below
PRODUCTS = frozenset(
    "matmul __matmul__ __rmatmul__ mm bmm addmm addmm_ baddbmm baddbmm_ addbmm addbmm_ mv addmv addmv_ dot vdot inner "
    "linear bilinear einsum tensordot chain_matmul multi_dot conv1d conv2d conv3d conv_transpose1d conv_transpose2d "
    "conv_transpose3d".split()
)
NO_KERNEL = "\"{}\" not implemented for '{}'"
NO_CONVOLUTION = "getCudnnDataTypeFromScalarType() not supported for {}"
KERNELS = {  # operator -> what PyTorch calls its kernel on a GPU
    "aten::mm": "addmm_cuda",
    "aten::addmm": "addmm_cuda",
    "aten::bmm": "baddbmm_cuda",
    "aten::baddbmm": "baddbmm_cuda",
    "aten::mv": "addmv_impl_cuda",
    "aten::addmv": "addmv_impl_cuda",
    "aten::dot": "dot",
    "aten::vdot": "vdot",
}


def call_without_integers(func: Callable[..., Any], gpu: torch.device, /, *args: Any, **kwargs: Any) -> Any:
    """Call a function that multiplies matrices; raise what PyTorch does on a GPU if they are of whole numbers."""
    if all(t.is_floating_point() or t.is_complex() for t in each_tensor([args, kwargs])):
        return func(*args, **kwargs)
    with _WithoutIntegers():
        return func(*args, **kwargs)


class _WithoutIntegers(TorchDispatchMode):
    """Refuses the operators for which there is no kernel, whatever function calls them."""

    def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        name, tensors = func.name().split(".")[0], list(each_tensor([args]))
        if not any(t.is_floating_point() or t.is_complex() for t in tensors):
            if name in KERNELS:
                raise NotImplementedError(NO_KERNEL.format(KERNELS[name], dtype_name(tensors[0])))
            if name == "aten::convolution":
                raise RuntimeError(NO_CONVOLUTION.format(dtype_name(tensors[0])))
        return func(*args, **(kwargs or {}))
