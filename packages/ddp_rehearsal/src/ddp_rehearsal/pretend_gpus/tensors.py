"""Follow the device of each tensor through every function of PyTorch, and refuse what GPUs refuse."""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext, _device_constructors

from ddp_rehearsal.pretend_gpus.autocast import autocast_is_on, call_in_autocast
from ddp_rehearsal.pretend_gpus.device_rules import DEVICE_RULES, device_of_result
from ddp_rehearsal.pretend_gpus.devices import CPU, DeviceLike, as_device, check_fork, gpu_index, replace
from ddp_rehearsal.pretend_gpus.kernels import PRODUCTS, call_without_integers
from ddp_rehearsal.pretend_gpus.legacy_types import device_and_dtype, type_name
from ddp_rehearsal.pretend_gpus.random_numbers import DRAWS_RANDOM, call_random
from ddp_rehearsal.pretend_gpus.storages import device_of, each_tensor, is_pinned, own_device, pin, place, shares_memory

__all__ = ["computing_on", "following", "is_argument", "moved_tensor", "pretend_tensors"]

T: Any = torch.Tensor
Function = Callable[..., Any]  # of PyTorch
GENERATOR = "Expected a '{}' device type for generator but found '{}'"
OTHER_DEVICE = (
    "attempting to assign a gradient with device type '{}' to a tensor with device type '{}'. Please ensure that the "
    "gradient and the tensor are on the same device"
)
CALLS = {**dict.fromkeys(PRODUCTS, call_without_integers), **dict.fromkeys(DRAWS_RANDOM, call_random)}  # on a GPU
_add_device = DeviceContext.__torch_function__
_computing = threading.local()  # `device` and `tensors` (the arguments) of the function that a thread is in


def computing_on() -> torch.device:
    """Return the device of the function that this thread is in; the CPU outside of any."""
    return getattr(_computing, "device", CPU)


def is_argument(tensor: torch.Tensor) -> bool:
    """Return whether a tensor shares its memory with an argument of the function that this thread is in."""
    return any(shares_memory(tensor, given) for given in getattr(_computing, "tensors", ()))


class PretendGpus(TorchFunctionMode):
    """Sees each call of a function of PyTorch that Python makes in a thread."""

    def __torch_function__(self, func: Function, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call `func` on the CPU, and place its result on the device where it would be."""
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if any(getattr(kind, "devices_of_its_own", False) for kind in types):  # a tensor of d2lite.exercises
            return func(*args, **kwargs)
        if name in ("__get__", "__set__"):
            return _attribute(func, args)
        special = _SPECIAL.get(func)
        if special is not None:
            return special(func, *args, **kwargs)
        wanted = as_device(kwargs["device"] if kwargs.get("device") is not None else _default_device(func))
        if wanted is not None and wanted.type == "cuda":
            kwargs["device"] = CPU
        tensors = list(each_tensor([args, kwargs]))
        devices = {device_of(t) for t in tensors}
        if len(devices) > 1 or name in DEVICE_RULES:
            places = device_of_result(name, (*args, *kwargs.values()), tensors)
        else:
            places = next(iter(devices), CPU)
        device = wanted or (places[0] if isinstance(places, list) else places)
        if device.type == "cuda":
            check_fork()
        _check_generator(kwargs.get("generator"), device)
        pinned = kwargs.pop("pin_memory", False)
        before = computing_on(), getattr(_computing, "tensors", ())
        _computing.device, _computing.tensors = device, tensors
        try:
            call = functools.partial(CALLS[name], func, device) if name in CALLS and device.type == "cuda" else func
            if device.type == "cuda" and autocast_is_on():
                result = call_in_autocast(call, name, args, kwargs)
            else:
                result = call(*args, **kwargs)
        finally:
            _computing.device, _computing.tensors = before
        if name in ("as_tensor", "asarray") and wanted is not None and device_of(result) != wanted:
            result = result.clone()  # it may be the argument itself, or share the memory of an array
        _place_all(result, device if wanted is not None else places)
        return pin(result) if pinned else result


def _place_all(result: Any, places: Any) -> None:
    """Place the tensors of a result on a device, or each part of it on the device at its position."""
    if isinstance(places, list):
        for part, device in zip(result or (), places, strict=False):
            _place_all(part, device)
        return
    for tensor in each_tensor(result):
        if own_device(tensor).type == "cpu":
            place(tensor, places)


def _default_device(func: Function) -> Any:
    """Return what `torch.set_default_device` says to a function that makes a tensor.

    PyTorch keeps its own mode for this at the bottom of the stack, below the mode here.
    """
    if torch._C._len_torch_function_stack() and func in _device_constructors():
        bottom = torch._C._get_function_stack_at(0)
        return bottom.device if isinstance(bottom, DeviceContext) else None
    return None


def _add_cpu(context: Any, func: Function, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """What a function calls inside is not seen by the mode here: there the default device "cuda" is the CPU."""
    if context.device.type == "cuda" and not _is_on():
        return func(*args, **(kwargs or {}))
    return _add_device(context, func, types, args, kwargs)


def _check_generator(generator: Any, device: torch.device) -> None:
    if generator is not None and generator.device.type != device.type and device.type in ("cpu", "cuda"):
        raise RuntimeError(GENERATOR.format(device.type, generator.device.type))


def _attribute(func: Function, args: Any) -> Any:
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
        raise RuntimeError(OTHER_DEVICE.format(device_of(args[1]).type, device_of(tensor).type))
    return func(*args)


def moved_tensor(tensor: torch.Tensor, device: DeviceLike) -> torch.Tensor:
    """Return a tensor on `device`: the same one if it is there already, else a copy."""
    return _to(T.to, tensor, device)


def _to(func: Function, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
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
        return func(tensor, CPU if device.type == "cuda" else device, dtype or tensor.dtype, copy=copy, **layout)
    with torch._C.DisableTorchFunction() if type(tensor) in (T, torch.nn.Parameter) else contextlib.nullcontext():
        result = func(tensor, CPU, dtype or tensor.dtype, copy=copy or device != here, **layout)
    return result if result is tensor else place(result, device)


def _cuda(
    func: Function, tensor: torch.Tensor, device: DeviceLike = None, non_blocking: bool = False, **layout: Any
) -> torch.Tensor:
    return _to(T.to, tensor, torch.device("cuda", gpu_index(device)), **layout)


def _cpu(func: Function, tensor: torch.Tensor, **layout: Any) -> torch.Tensor:
    return _to(T.to, tensor, CPU, **layout)


def _pin_memory(func: Function, tensor: torch.Tensor, device: DeviceLike = None) -> torch.Tensor:
    """A copy, as of a real machine, unless the memory is pinned already."""
    if device_of(tensor).type == "cuda":
        raise RuntimeError(f"cannot pin '{type_name(tensor)}' only dense CPU tensors can be pinned")
    return tensor if is_pinned(tensor) else pin(tensor.clone())


def _numpy(func: Function, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    if device_of(tensor).type == "cuda":
        raise TypeError(
            f"can't convert {device_of(tensor)} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to "
            "host memory first."
        )
    return func(tensor, *args, **kwargs)


def _type(func: Function, tensor: torch.Tensor, dtype: object = None, non_blocking: bool = False) -> Any:
    """Tensor.type(): "torch.cuda.FloatTensor"; Tensor.type(kind): a tensor of this dtype, and on its device."""
    if dtype is None:
        return type_name(tensor)
    device = device_of(tensor)
    if not isinstance(dtype, torch.dtype):
        kind, dtype = device_and_dtype(dtype)
        device = device if kind == device.type else torch.device(kind)
    return _to(T.to, tensor, device, dtype)


def _device_by_number(func: Function, *args: Any, **kwargs: Any) -> torch.device:
    """torch.device(0), which a build without CUDA refuses."""
    return func("cuda", *args) if len(args) == 1 and type(args[0]) is int else func(*args, **kwargs)


def _arguments_of_to(func: Function, *args: Any, **kwargs: Any) -> Any:
    """The device, dtype and layout that `Module.to()` was told: by numbers, names, devices or a tensor."""
    if args and type(args[0]) is int:  # a build without CUDA has no device of that number
        args = (as_device(args[0]), *args[1:])
    if type(kwargs.get("device")) is int:
        kwargs["device"] = as_device(kwargs["device"])
    other = kwargs.get("tensor", args[0] if args else None)
    device, *rest = func(*args, **kwargs)
    return (device_of(other) if isinstance(other, T) else device, *rest)


def _deepcopy(func: Function, tensor: torch.Tensor, memo: object) -> torch.Tensor:
    return place(func(tensor, memo), device_of(tensor))  # `memo` may hold tensors of other devices


def _register_hook(func: Function, tensor: torch.Tensor, hook: Callable[..., Any]) -> Any:
    """Register a hook that gets a gradient or a parameter of the tensor's device."""
    device = device_of(tensor)

    def placed(grad_or_param: torch.Tensor) -> Any:
        with following():
            result = hook(place(grad_or_param, device))
        if isinstance(result, T) and device_of(result) != device:
            types = type_name(grad_or_param), type_name(result)
            name = getattr(hook, "__name__", type(hook).__name__)
            raise RuntimeError(f"hook '{name}' has changed the type of value (was {types[0]} got {types[1]})")
        return result

    return func(tensor, placed)


def _repr(func: Function, tensor: torch.Tensor, **kwargs: Any) -> str:
    text, device = func(tensor, **kwargs), device_of(tensor)
    if device.type != "cuda" or not text.endswith(")"):
        return text
    at = max(text.rfind(", grad_fn="), text.rfind(", requires_grad="))
    at = at if at > 0 else len(text) - 1
    return f"{text[:at]}, device='{device}'{text[at:]}"


_SPECIAL: dict[Any, Any] = {
    T.to: _to,
    T.cuda: _cuda,
    T.cpu: _cpu,
    T.type: _type,
    T.type_as: lambda func, tensor, other: _to(T.to, tensor, other),
    T.pin_memory: _pin_memory,
    T.is_pinned: lambda func, tensor, device=None: is_pinned(tensor),
    T.numpy: _numpy,
    T.__array__: _numpy,
    T.get_device: lambda func, tensor: device_of(tensor).index if device_of(tensor).type == "cuda" else -1,
    T.__deepcopy__: _deepcopy,
    T.register_hook: _register_hook,
    T.register_post_accumulate_grad_hook: _register_hook,
    T.__repr__: _repr,
    torch.device: _device_by_number,
    torch._C._nn._parse_to: _arguments_of_to,
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


def _follow_callbacks() -> None:
    """Follow what callbacks of futures compute: gloo calls them in threads of its own."""
    future: Any = torch._C.Future  # torch.futures.Future inherits it
    for name in ("then", "add_done_callback"):
        add = getattr(future, name)

        @functools.wraps(add)
        def add_following(self: Any, callback: Callable[..., Any], add: Any = add) -> Any:
            def called(done: Any) -> Any:
                with following():
                    return callback(done)

            return add(self, called)

        setattr(future, name, add_following)


def pretend_tensors() -> None:
    """Follow the tensors of this thread from now on, and those of threads that start later."""
    run = threading.Thread.run

    def run_following(self: threading.Thread) -> None:
        with following():
            run(self)

    threading.Thread.run = run_following  # type: ignore[method-assign]  # a mode is for one thread
    _follow_callbacks()
    make_wrapper = torch.Tensor._make_wrapper_subclass

    def make_wrapper_on_cpu(cls: Any, *args: Any, **kwargs: Any) -> Any:  # AsyncCollectiveTensor wraps a CPU tensor
        on_gpu = getattr(kwargs.get("device"), "type", "") == "cuda"
        return make_wrapper(cls, *args, **{**kwargs, **({"device": CPU} if on_gpu else {})})

    replace({"_make_wrapper_subclass": staticmethod(make_wrapper_on_cpu)}, torch.Tensor)
    DeviceContext.__torch_function__ = _add_cpu  # type: ignore[method-assign]
    _mode.__enter__()
