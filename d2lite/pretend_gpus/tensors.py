"""Follow the device of each tensor through every function of PyTorch, and refuse what GPUs refuse."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext, _device_constructors

from d2lite.pretend_gpus.autocast import autocast_is_on, call_in_autocast
from d2lite.pretend_gpus.devices import CPU, as_device, gpu_index, replace
from d2lite.pretend_gpus.storages import device_of, is_pinned, own_device, pin, place

__all__ = ["computing_on", "following", "moved_tensor", "pretend_tensors", "tensors_in"]

T: Any = torch.Tensor
MIXED = "Expected all tensors to be on the same device, but found at least two devices, {} and {}!"
GENERATOR = "Expected a '{}' device type for generator but found '{}'"
GRADIENT = "attempting to assign a gradient with device type '{}' to a tensor with device type '{}'."
MAY_MIX = ("copy_", "_foreach_copy_", "type_as", "_has_compatible_shallow_copy_type", "is_same_size", "set_")
_add_device = DeviceContext.__torch_function__
_computing = threading.local()  # `device` of the function that a thread is in


def computing_on() -> torch.device:
    """Return the device of the function that this thread is in; the CPU outside of any."""
    return getattr(_computing, "device", CPU)


def tensors_in(value: Any, depth: int = 0) -> Iterator[Any]:
    """Yield the tensors in lists, tuples and dicts, which may be nested four deep."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)) and depth < 4:
        for item in value:
            yield from tensors_in(item, depth + 1)
    elif isinstance(value, dict) and depth < 4:
        for item in value.values():
            yield from tensors_in(item, depth + 1)


class PretendGpus(TorchFunctionMode):
    """Sees each call of a function of PyTorch that Python makes in a thread."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call `func` on the CPU, and place its result on the device where it would be."""
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if any(kind.__name__ == "PretendTensor" for kind in types):  # of d2lite.exercises: it has devices of its own
            return func(*args, **kwargs)
        if name in ("__get__", "__set__"):
            return _attribute(func, args)
        if name in _SPECIAL and func == getattr(T, name, None):
            return _SPECIAL[name](func, *args, **kwargs)
        if name == "_parse_to" and args and type(args[0]) is int:  # a build without CUDA has no device of that number
            args = (as_device(args[0]), *args[1:])
        wanted = as_device(kwargs["device"] if kwargs.get("device") is not None else _default_device(func))
        if wanted is not None and wanted.type == "cuda":
            kwargs["device"] = CPU
        tensors = list(tensors_in([args, kwargs]))
        devices = dict.fromkeys(device_of(t) for t in tensors if is_lazy(t) or t.dim() or device_of(t).type != "cpu")
        real = [device for device in devices if device.type != "meta"]
        if len(real) > 1 and not _may_mix(name, args):
            raise RuntimeError(MIXED.format(real[0], real[1]) + f" (when checking arguments of {name})")
        device = wanted or next((d for d in real if d.type == "cuda"), CPU)
        if name == "copy_":
            device = device_of(args[0])
        _check_generator(kwargs.get("generator"), device)
        pinned = kwargs.pop("pin_memory", False)
        before, _computing.device = computing_on(), device
        try:
            if device.type == "cuda" and autocast_is_on():
                result = call_in_autocast(func, name, args, kwargs)
            else:
                result = func(*args, **kwargs)
        finally:
            _computing.device = before
        if name in ("as_tensor", "asarray") and wanted is not None and device_of(result) != wanted:
            result = result.clone()  # it may be the argument itself, or share the memory of an array
        for tensor in tensors_in(result):
            if own_device(tensor).type == "cpu":
                place(tensor, device)
        return pin(result) if pinned else result


def _default_device(func: Any) -> Any:
    """Return what `torch.set_default_device` says to a function that makes a tensor.

    PyTorch keeps its own mode for this at the bottom of the stack, below the mode here.
    """
    if torch._C._len_torch_function_stack() and func in _device_constructors():
        bottom = torch._C._get_function_stack_at(0)
        return bottom.device if isinstance(bottom, DeviceContext) else None
    return None


def _add_cpu(context: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """What a function calls inside is not seen by the mode here: there the default device "cuda" is the CPU."""
    if context.device.type == "cuda" and not _is_on():
        return func(*args, **(kwargs or {}))
    return _add_device(context, func, types, args, kwargs)


def _may_mix(name: str, args: Any) -> bool:
    """Return whether a function of this name takes these arguments from several devices."""
    if name == "__getitem__":  # an index on the CPU is allowed
        return all(device_of(t) in (CPU, device_of(args[0])) for t in tensors_in(list(args[1:])))
    if name == "__setitem__":
        value = args[2]
        same = not isinstance(value, T) or device_of(value) in (CPU, device_of(args[0]))
        return same and all(device_of(t) in (CPU, device_of(args[0])) for t in tensors_in([args[1]]))
    return name in MAY_MIX


def _check_generator(generator: Any, device: torch.device) -> None:
    if generator is not None and generator.device.type != device.type and device.type in ("cpu", "cuda"):
        raise RuntimeError(GENERATOR.format(device.type, generator.device.type))


def _attribute(func: Any, args: Any) -> Any:
    """Return an attribute of a tensor, or set it, as on the device that the tensor pretends to be on."""
    tensor = args[0]
    if func == T.device.__get__:
        return device_of(tensor)
    if func == T.is_cuda.__get__:
        return device_of(tensor).type == "cuda"
    if func == T.is_cpu.__get__:
        return device_of(tensor).type == "cpu"
    if func == T.grad.__get__:  # autograd makes it, unseen
        found = func(*args)
        return found if found is None else place(found, device_of(tensor))
    if func == T.grad.__set__ and args[1] is not None and device_of(args[1]) != device_of(tensor):
        raise RuntimeError(GRADIENT.format(device_of(args[1]).type, device_of(tensor).type))
    return func(*args)


def moved_tensor(tensor: Any, device: Any) -> Any:
    """Return a tensor on `device`: the same one if it is there already, else a copy."""
    return _to(T.to, tensor, device)


def _to(func: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
    """Tensor.to(device, dtype, ...), to(dtype, ...) and to(other, ...)."""
    device, dtype, copy = kwargs.get("device"), kwargs.get("dtype"), kwargs.get("copy", False)
    other = kwargs.get("other", args[0] if args and isinstance(args[0], T) else None)
    if other is not None:
        device, dtype, args = device_of(other), other.dtype, args[1:]
    elif args and (args[0] is None or isinstance(args[0], (str, int, torch.device))):
        device, args = args[0], args[1:]
    if args and (args[0] is None or isinstance(args[0], torch.dtype)):
        dtype, args = args[0], args[1:]
    copy = copy or args[1:2] == (True,)  # after non_blocking
    device, here = as_device(device) or device_of(tensor), device_of(tensor)
    layout = {name: kwargs[name] for name in ("memory_format",) if name in kwargs}
    if "meta" in (here.type, device.type):
        return func(tensor, device, dtype or tensor.dtype, copy=copy, **layout)
    with torch._C.DisableTorchFunction() if type(tensor) in (T, torch.nn.Parameter) else contextlib.nullcontext():
        result = func(tensor, CPU, dtype or tensor.dtype, copy=copy or device != here, **layout)
    return result if result is tensor else place(result, device)


def _cuda(func: Any, tensor: Any, device: Any = None, non_blocking: bool = False, **layout: Any) -> Any:
    return _to(T.to, tensor, torch.device("cuda", gpu_index(device)), **layout)


def _cpu(func: Any, tensor: Any, **layout: Any) -> Any:
    return _to(T.to, tensor, CPU, **layout)


def _pin_memory(func: Any, tensor: Any, device: Any = None) -> Any:
    """A copy, as of a real machine, unless the memory is pinned already."""
    if device_of(tensor).type == "cuda":
        raise RuntimeError("cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned")
    return tensor if is_pinned(tensor) else pin(tensor.clone())


def _numpy(func: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
    if device_of(tensor).type == "cuda":
        raise TypeError(
            f"can't convert {device_of(tensor)} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to "
            "host memory first."
        )
    return func(tensor, *args, **kwargs)


def _deepcopy(func: Any, tensor: Any, memo: Any) -> Any:
    return place(func(tensor, memo), device_of(tensor))  # `memo` may hold tensors of other devices


def _register_hook(func: Any, tensor: Any, hook: Callable[..., Any]) -> Any:
    """Register a hook that gets a gradient or a parameter of the tensor's device."""
    device = device_of(tensor)

    def placed(grad_or_param: Any) -> Any:
        with following():
            return hook(place(grad_or_param, device))

    return func(tensor, placed)


def _repr(func: Any, tensor: Any, **kwargs: Any) -> str:
    text, device = func(tensor, **kwargs), device_of(tensor)
    if device.type != "cuda" or not text.endswith(")"):
        return text
    at = max(text.rfind(", grad_fn="), text.rfind(", requires_grad="))
    at = at if at > 0 else len(text) - 1
    return f"{text[:at]}, device='{device}'{text[at:]}"


_SPECIAL: dict[str, Any] = {
    "to": _to,
    "cuda": _cuda,
    "cpu": _cpu,
    "pin_memory": _pin_memory,
    "is_pinned": lambda func, tensor, device=None: is_pinned(tensor),
    "numpy": _numpy,
    "__array__": _numpy,
    "get_device": lambda func, tensor: device_of(tensor).index if device_of(tensor).type == "cuda" else -1,
    "__deepcopy__": _deepcopy,
    "register_hook": _register_hook,
    "register_post_accumulate_grad_hook": _register_hook,
    "__repr__": _repr,
}
_mode = PretendGpus()


def _is_on() -> bool:
    stack = range(torch._C._len_torch_function_stack())
    return any(torch._C._get_function_stack_at(i) is _mode for i in stack)


@contextlib.contextmanager
def following() -> Iterator[None]:
    """Follow the tensors in this block, in whatever thread it runs."""
    if _is_on():
        yield
    else:
        with _mode:
            yield


class _KindOfGenerator(type(torch._C.Generator)):  # type: ignore[misc]
    """isinstance(generator, torch.Generator) holds for those of PyTorch itself as well."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch._C.Generator)


class Generator(torch._C.Generator, metaclass=_KindOfGenerator):
    """A generator of random numbers that says that it is on a GPU; the numbers are those of the CPU."""

    def __new__(cls, device: Any = "cpu") -> Any:
        """Make one on the CPU."""
        made: Any = torch._C.Generator.__new__(cls, CPU)  # type: ignore[call-arg]
        made.pretended = as_device(device)
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The device that it was made for."""
        return self.pretended  # type: ignore[attr-defined]


def pretend_tensors() -> None:
    """Follow the tensors of this thread from now on, and those of threads that start later."""
    run = threading.Thread.run

    def run_following(self: threading.Thread) -> None:
        with following():
            run(self)

    threading.Thread.run = run_following  # type: ignore[method-assign]  # a mode is for one thread
    make_wrapper = torch.Tensor._make_wrapper_subclass

    def make_wrapper_on_cpu(cls: Any, *args: Any, **kwargs: Any) -> Any:  # AsyncCollectiveTensor wraps a CPU tensor
        on_gpu = getattr(kwargs.get("device"), "type", "") == "cuda"
        return make_wrapper(cls, *args, **{**kwargs, **({"device": CPU} if on_gpu else {})})

    replace({"_make_wrapper_subclass": staticmethod(make_wrapper_on_cpu)}, torch.Tensor)
    DeviceContext.__torch_function__ = _add_cpu  # type: ignore[method-assign]
    torch.Generator = Generator  # type: ignore[misc]
    _mode.__enter__()
