"""Which devices the arguments of a function may be on, and where its result is: as on real GPUs.

Two devices in one call are refused, but a number (a tensor without dimensions) may stay on the CPU. `DEVICE_RULES`
has the functions to which something else applies, and `test_against_a_real_gpu.py` compares them with a real GPU.
"""

import os
import sys
from collections.abc import Callable
from numbers import Integral
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from ddp_rehearsal.pretend_gpus.devices import CPU
from ddp_rehearsal.pretend_gpus.legacy_types import dtype_name, type_name
from ddp_rehearsal.pretend_gpus.storages import device_of, each_tensor

__all__ = ["DEVICE_RULES", "device_of_result"]

Devices = torch.device | list[torch.device]  # one for the complete result, or one for each tensor of it
Args = tuple[Any, ...]  # of a function of PyTorch
Rule = Callable[[Args], Devices | None]  # gets the arguments; None: as for all other functions

T: Any = torch.Tensor
MIXED = "Expected all tensors to be on the same device, but found at least two devices, {} and {}! ({})"
SAYS = {  # what these say in place of MIXED
    "masked_fill": "expected self and mask to be on the same device, but got mask on {1} and self on {0}",
    "masked_fill_": "expected self and mask to be on the same device, but got mask on {1} and self on {0}",
    "take_along_dim": "Expected tensor to have {0} Device, but got tensor with {1} Device "
    "(while checking arguments for torch.take_along_dim():)",
    "inner": "Expected tensor to have cuda DeviceType, but got tensor with cpu DeviceType "
    "(while checking arguments for inner())",
}
DECOMPOSITIONS = os.path.join("torch", "_decomp", "")
FIRST_FACTOR = (
    "CPU Scalar support for tensor1 argument is not supported when calling addcmul on CUDA tensors. However, CPU "
    "Scalar support for tensor2 is supported, please swap your tensor1 and tensor2 terms."
)
TOO_MANY = "Trying to pass too many CPU scalars to non-CPU kernel!"
RNN = "Input and {} tensors are not at the same device, found input tensor at {} and {} tensor at {}"
LENGTHS = "'lengths' argument should be a 1D CPU int64 tensor, but got {}D {} {} tensor"
INDICES = "indices should be either on cpu or on the same device as the indexed tensor ({})"
# here a number must be on the GPU as well; the losses broadcast it first
STRICT = frozenset(
    "cat concat concatenate stack hstack vstack dstack row_stack column_stack clamp clamp_ clip clip_ equal isin "
    "searchsorted bucketize index_select embedding cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss "
    "normal quantile nanquantile addcdiv addcdiv_ addmm addmm_ baddbmm baddbmm_ clamp_min clamp_min_ clamp_max "
    "clamp_max_ inner kron logaddexp logaddexp2 nextafter scatter scatter_ complex "
    "igamma igammac masked_scatter masked_scatter_ multi_margin_loss "
    "multilabel_margin_loss polar prelu take".split()
)


def device_of_result(name: str, args: Args, tensors: list[torch.Tensor]) -> Devices:
    """Return where the result of a function is; `tensors` are those in its arguments.

    Raises RuntimeError in PyTorch's words if a real GPU refuses the devices of the arguments.
    """
    rule = DEVICE_RULES.get(name, _by_position if name.startswith("_foreach_") else None)
    return (rule and args and rule(args)) or _one_device(name, args, tensors)


def _one_device(name: str, args: Args, tensors: list[torch.Tensor]) -> torch.device:
    numbers = [t for t in tensors if not is_lazy(t) and not t.dim() and device_of(t).type == "cpu"]
    is_in_place = name.startswith("__i") or (name.endswith("_") and not name.endswith("__"))
    exempt = [] if name in STRICT else [t for t in numbers if not (is_in_place and t is args[0])]
    found = dict.fromkeys(device_of(t) for t in tensors if not any(t is number for number in exempt))
    devices = sorted((d for d in found if d.type != "meta"), key=lambda d: d.type == "cpu")
    if len(devices) > 1 and not _is_called_by_cpp():
        raise RuntimeError(SAYS.get(name, MIXED).format(*devices[:2], f"when checking arguments of {name}"))
    return devices[0] if devices else CPU


def _is_called_by_cpp() -> bool:
    """Return whether C++ has made the tensors unseen: for a gradient that Python computes, or for a dispatch mode."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if DECOMPOSITIONS in frame.f_code.co_filename or frame.f_code.co_name == "__torch_dispatch__":
            return True
        frame = frame.f_back
    return False


def _device_of_first(argument: object) -> torch.device:
    """Return the device of an argument, or of the first tensor in it; the CPU if it has none."""
    return next(map(device_of, each_tensor([argument])), CPU)


def _as_first(args: Args) -> torch.device:
    """The first argument decides, the others may be anywhere."""
    return _device_of_first(args[0])


def _as_first_on_gpu(args: Args) -> torch.device | None:
    return _device_of_first(args[0]) if _device_of_first(args[0]).type == "cuda" else None


def _each(args: Args) -> list[torch.device]:
    return [device_of(t) for t in each_tensor([args])]


def _each_of_first(args: Args) -> list[torch.device]:
    return _each(args[:1])


def _as_inputs(args: Args) -> list[torch.device]:
    """(outputs, inputs, ...): each gradient is where its input is, or on the GPU if that is an edge of the graph."""
    inputs = (args[1],) if isinstance(args[1], T) else args[1]
    gpu = next((d for d in _each(args) if d.type == "cuda"), CPU)
    return [device_of(t) if isinstance(t, T) else gpu for t in inputs]


def _by_position(args: Args) -> list[torch.device]:
    """Lists of tensors: one device at each position."""
    lists = [a for a in args if isinstance(a, (list, tuple)) and all(isinstance(t, T) for t in a)]
    return [_one_device("_foreach", together, list(together)) for together in zip(*lists, strict=False)]


def _from_data(args: Args) -> torch.device:
    """The numbers of a list are read one by one, and the result is on the CPU."""
    return _device_of_first(args[0]) if isinstance(args[0], T) else CPU


def _has_no_dimensions(index: torch.Tensor) -> bool:
    return not index.dim() and index.dtype != torch.bool


def _is_slice(index: object) -> bool:
    """Whether PyTorch takes a view for this index: not for a list, an array or a tensor of indices, nor for a mask."""
    if isinstance(index, T):
        return _has_no_dimensions(index)
    return index is None or index is ... or isinstance(index, (slice, Integral)) and not isinstance(index, bool)


def _get_item(args: Args) -> torch.device:
    here = device_of(args[0])
    if any(device_of(t) not in (CPU, here) and not _has_no_dimensions(t) for t in each_tensor([args[1]])):
        raise RuntimeError(INDICES.format(here))
    return here


def _set_item(args: Args) -> torch.device:
    """A slice is copied to; by indices, only one element may come from another device."""
    here, index, value = device_of(args[0]), args[1], args[2]
    by_indices = not all(_is_slice(part) for part in (index if isinstance(index, tuple) else (index,)))
    if by_indices and isinstance(value, T) and device_of(value) != here and value.numel() != 1:
        _one_device("__setitem__", (), [args[0], value])
    return here


def _fill(args: Args) -> torch.device | None:
    """The number that fills is read: it may be anywhere. PyTorch itself refuses a tensor with dimensions."""
    is_tensor = isinstance(args[-1], T)
    return _one_device("masked_fill", args, list(each_tensor([args[:-1]]))) if is_tensor else None


def _l1_loss(args: Args) -> torch.device:
    """The difference of two numbers, or of all values after the number was broadcast."""
    tensors = list(each_tensor([args]))
    return _one_device("l1_loss" if any(t.dim() for t in tensors) else "sub", args, tensors)


def _cross_entropy_of_numbers(args: Args) -> torch.device | None:
    """PyTorch compares sizes first, so that only two numbers come as far as their devices."""
    is_number = isinstance(args[0], T) and not args[0].dim()
    return _one_device("stack", args, list(each_tensor([args]))) if is_number else None


def _addcmul(args: Args) -> None:
    """(X, factor, factor): a number on the CPU may be the last factor alone."""
    first, last = (isinstance(t, T) and not t.dim() and device_of(t) == CPU for t in args[-2:])
    if first and _device_of_first(args[0]).type == "cuda":
        raise RuntimeError(TOO_MANY if last else FIRST_FACTOR)


def _convolution(args: Args) -> None:
    """(X, weight, bias, ...): the types that PyTorch names hold the devices as well."""
    for kind, other in zip(("weight", "bias"), args[1:3], strict=False):
        if _device_of_first(args[0]).type == "cuda" and isinstance(other, T) and device_of(other).type == "cpu":
            types = type_name(args[0]), type_name(other)
            raise RuntimeError(f"Input type ({types[0]}) and {kind} type ({types[1]}) should be the same")


def _recurrent(args: Args) -> torch.device:
    """(X, state, weights, ...) or (data of packed sequences, batch sizes on the CPU, state, weights, ...)."""
    here, is_packed = device_of(args[0]), isinstance(args[3], (list, tuple))
    for kind, tensors in zip(("hidden", "parameter"), args[2:4] if is_packed else args[1:3], strict=True):
        for other in map(device_of, each_tensor([tensors])):
            if other != here:
                raise RuntimeError(RNN.format(kind, here, kind, other))
    return here


def _pack(args: Args) -> list[torch.device]:
    X, lengths = args[:2]
    if device_of(lengths) != CPU:
        raise RuntimeError(LENGTHS.format(lengths.dim(), device_of(lengths), dtype_name(lengths)))
    return [device_of(X), CPU]  # the data; how many sequences have each step


def _pad_packed(args: Args) -> list[torch.device]:
    return [device_of(args[0]), CPU]  # the padded sequences; their lengths


def _rules(rule: Rule, names: str) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


DEVICE_RULES: dict[str, Rule] = {
    **_rules(_as_first, "copy_ set_ fill_ view_as expand_as reshape_as resize_as_ pad_sequence backward"),
    **_rules(_as_first, "is_same_size is_set_to result_type _has_compatible_shallow_copy_type"),
    **_rules(_as_first_on_gpu, "ctc_loss"),  # lengths and labels stay on the CPU
    **_rules(_each, "broadcast_tensors"),
    **_rules(_each_of_first, "_foreach_copy_"),
    **_rules(_as_inputs, "grad"),
    **_rules(_from_data, "tensor as_tensor asarray"),
    **_rules(_get_item, "__getitem__"),
    **_rules(_set_item, "__setitem__ index_put index_put_"),
    **_rules(_fill, "masked_fill masked_fill_ index_fill index_fill_"),
    **_rules(_l1_loss, "l1_loss"),
    **_rules(_cross_entropy_of_numbers, "binary_cross_entropy binary_cross_entropy_with_logits"),
    **_rules(_addcmul, "addcmul addcmul_"),
    **_rules(_convolution, "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d"),
    **_rules(_recurrent, "lstm gru rnn_tanh rnn_relu"),
    **_rules(_pack, "_pack_padded_sequence"),
    **_rules(_pad_packed, "_pad_packed_sequence"),
}
