"""Pretend GPUs: tensors on the CPU that carry the device they would be on, and refuse what real GPUs refuse.

`install(n)` gives this process n pretend GPUs: `torch.cuda` counts them, tensors moved to "cuda:1" are copied and
answer `device(type='cuda', index=1)`, and an operation on tensors of two devices raises PyTorch's own error. In a
process group, "nccl" refuses CPU tensors as the real one does, and sends by gloo. The values are real; times and memory
are those of the CPU.

What is not pretended: memory of its own, streams that run side by side, kernels that round differently, speed.
"""

import contextlib
import functools
import importlib
import os
import threading
import time
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import comm
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

__all__ = ["install"]

T = torch.Tensor
CPU = torch.device("cpu")
MIXED = "Expected all tensors to be on the same device, but found at least two devices, {} and {}!"
NAME = "pretend GPU"
_tags = WeakTensorKeyDictionary()  # tensor -> its pretend GPU
_current = threading.local()  # `index` of the current device of a thread
_state = SimpleNamespace(count=0, backends={})


def tag_of(tensor):
    """Return the device that a tensor pretends to be on."""
    return _tags.get(tensor) or torch._C.TensorBase.device.__get__(tensor)


def set_tag(tensor, device):
    """Let a tensor pretend to be on `device`; the CPU for no pretence."""
    if device.type == "cuda":
        _tags[tensor] = device
    else:
        _tags.pop(tensor, None)
    return tensor


def as_device(device):
    """Return a device with an index, or None; raise PyTorch's error for a GPU that is not there."""
    if device is None:
        return None
    device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if device.type != "cuda":
        return device
    index = current_device() if device.index is None else device.index
    if index >= _state.count:
        raise RuntimeError("CUDA error: invalid device ordinal")
    return torch.device("cuda", index)


def current_device():
    """Return the index of this thread's current pretend GPU."""
    return getattr(_current, "index", 0)


def tensors_in(value, depth=0):
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
    """Follow the device of each tensor through every function of PyTorch."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if any(kind.__name__ == "PretendTensor" for kind in types):  # of d2lite.exercises: it has devices of its own
            return func(*args, **kwargs)
        if name in ("__get__", "__set__"):
            return _attribute(func, args)
        if name in _SPECIAL and func == getattr(T, name, None):
            return _SPECIAL[name](func, *args, **kwargs)
        wanted = as_device(kwargs.get("device"))
        if wanted is not None and wanted.type == "cuda":
            kwargs["device"] = CPU
        tensors = list(tensors_in([args, kwargs]))
        devices = list(dict.fromkeys(tag_of(t) for t in tensors if t.dim() or tag_of(t).type != "cpu"))
        real = [device for device in devices if device.type != "meta"]
        if len(real) > 1 and not _may_mix(name, args):
            raise RuntimeError(MIXED.format(real[0], real[1]) + f" (when checking arguments of {name})")
        result = func(*args, **kwargs)
        device = wanted or next((d for d in real if d.type == "cuda"), CPU)
        if name == "copy_":
            device = tag_of(args[0])
        for tensor in tensors_in(result):
            if torch._C.TensorBase.device.__get__(tensor).type == "cpu":
                set_tag(tensor, device)
        return result


def _may_mix(name, args):
    """Return whether a function of this name takes these arguments from several devices."""
    if name == "__getitem__":  # an index on the CPU is allowed
        return all(tag_of(t) in (CPU, tag_of(args[0])) for t in tensors_in(list(args[1:])))
    if name == "__setitem__":
        value = args[2]
        same = not isinstance(value, T) or tag_of(value) in (CPU, tag_of(args[0]))
        return same and all(tag_of(t) in (CPU, tag_of(args[0])) for t in tensors_in([args[1]]))
    return name in ("copy_", "type_as", "_has_compatible_shallow_copy_type", "is_same_size", "set_")


def _attribute(func, args):
    """Return an attribute of a tensor, or set it, as on the device that the tensor pretends to be on."""
    tensor = args[0]
    if func == T.device.__get__:
        return tag_of(tensor)
    if func == T.is_cuda.__get__:
        return tag_of(tensor).type == "cuda"
    if func == T.is_cpu.__get__:
        return tag_of(tensor).type == "cpu"
    if func in (T.grad.__get__, T.data.__get__, T.real.__get__, T.T.__get__, T.mT.__get__):
        found = func(*args)
        return found if found is None else set_tag(found, tag_of(tensor))
    if func == T.grad.__set__ and args[1] is not None and tag_of(args[1]) != tag_of(tensor):
        raise RuntimeError(f"attempting to assign a gradient with device type '{tag_of(args[1]).type}' to a tensor ...")
    result = func(*args)
    if func == T.data.__set__:
        set_tag(tensor, tag_of(args[1]))
    return result


def _to(func, tensor, *args, **kwargs):
    """Tensor.to(device, dtype, ...), to(dtype, ...) and to(other, ...)."""
    device, dtype, copy = kwargs.get("device"), kwargs.get("dtype"), kwargs.get("copy", False)
    other = kwargs.get("other", args[0] if args and isinstance(args[0], T) else None)
    if other is not None:
        device, dtype, args = tag_of(other), other.dtype, args[1:]
    elif args and (args[0] is None or isinstance(args[0], (str, int, torch.device))):
        device, args = args[0], args[1:]
    if args and (args[0] is None or isinstance(args[0], torch.dtype)):
        dtype, args = args[0], args[1:]
    copy = copy or args[1:2] == (True,)  # after non_blocking
    device, here = as_device(device) or tag_of(tensor), tag_of(tensor)
    layout = {name: kwargs[name] for name in ("memory_format",) if name in kwargs}
    if "meta" in (here.type, device.type):
        return func(tensor, device, dtype or tensor.dtype, copy=copy, **layout)
    result = func(tensor, CPU, dtype or tensor.dtype, copy=copy or device != here, **layout)
    return result if result is tensor else set_tag(result, device)


def _cuda(func, tensor, device=None, non_blocking=False):
    return _to(T.to, tensor, as_device("cuda" if device is None else device))


def _cpu(func, tensor, *args, **kwargs):
    return _to(T.to, tensor, CPU)


def _numpy(func, tensor, *args, **kwargs):
    if tag_of(tensor).type == "cuda":
        raise TypeError(
            f"can't convert {tag_of(tensor)} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host "
            "memory first."
        )
    return func(tensor, *args, **kwargs)


def _deepcopy(func, tensor, memo):
    return set_tag(func(tensor, memo), tag_of(tensor))


def _register_hook(func, tensor, hook):
    """Register a hook that gets a gradient or a parameter of the tensor's device."""
    device = tag_of(tensor)

    @functools.wraps(hook, assigned=())
    def tagged(grad_or_param):
        with _entered():
            return hook(set_tag(grad_or_param, device))

    return func(tensor, tagged)


def _repr(func, tensor, **kwargs):
    text, device = func(tensor, **kwargs), tag_of(tensor)
    if device.type != "cuda" or not text.endswith(")"):
        return text
    at = max(text.rfind(", grad_fn="), text.rfind(", requires_grad="))
    at = at if at > 0 else len(text) - 1
    return f"{text[:at]}, device='{device}'{text[at:]}"


_SPECIAL = {
    "to": _to,
    "cuda": _cuda,
    "cpu": _cpu,
    "numpy": _numpy,
    "__array__": _numpy,
    "get_device": lambda func, tensor: tag_of(tensor).index if tag_of(tensor).type == "cuda" else -1,
    "__deepcopy__": _deepcopy,
    "register_hook": _register_hook,
    "register_post_accumulate_grad_hook": _register_hook,
    "__repr__": _repr,
    "record_stream": lambda func, tensor, stream: None,
}


_mode = PretendGpus()


@contextlib.contextmanager
def _entered():
    """Follow the tensors in this block, in whatever thread it runs."""
    with _mode:
        yield


class Event:
    """A CUDA event that reads the clock of the CPU."""

    def __init__(self, enable_timing=False, blocking=False, interprocess=False):
        self.moment = None

    def record(self, stream=None):
        self.moment = time.perf_counter()

    def elapsed_time(self, end):
        return (end.moment - self.moment) * 1e3

    def query(self):
        return True

    def synchronize(self):
        pass

    def wait(self, stream=None):
        pass


class Stream(contextlib.nullcontext):
    """A CUDA stream that computes immediately."""

    def __init__(self, device=None, **kwargs):
        super().__init__()
        self.device = as_device("cuda" if device is None else device)

    def synchronize(self):
        pass

    def is_capturing(self):
        return False

    def wait_stream(self, stream):
        pass

    def wait_event(self, event):
        pass

    def record_event(self, event=None):
        event = event or Event()
        event.record()
        return event


class Device:
    """`torch.cuda.device`: the current device within a block."""

    def __init__(self, device):
        self.index = as_device(device).index if device not in (None, -1) else current_device()

    def __enter__(self):
        self.before, _current.index = current_device(), self.index

    def __exit__(self, *error):
        _current.index = self.before


def set_device(device):
    _current.index = as_device(device).index


def _patch_cuda(n):
    nothing = lambda *args, **kwargs: None  # noqa: E731
    zero = lambda *args, **kwargs: 0  # noqa: E731
    properties = SimpleNamespace(
        name=NAME, total_memory=8 << 30, major=8, minor=0, multi_processor_count=1, max_threads_per_multi_processor=1
    )
    new = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: n,
        "current_device": current_device,
        "set_device": set_device,
        "device": Device,
        "synchronize": nothing,
        "init": nothing,
        "_lazy_init": nothing,
        "empty_cache": nothing,
        "reset_peak_memory_stats": nothing,
        "memory_allocated": zero,
        "max_memory_allocated": zero,
        "memory_reserved": zero,
        "mem_get_info": lambda *args: (8 << 30, 8 << 30),
        "get_device_name": lambda *args: NAME,
        "get_device_properties": lambda *args: properties,
        "get_device_capability": lambda *args: (8, 0),
        "is_bf16_supported": lambda *args: True,
        "manual_seed": nothing,
        "manual_seed_all": nothing,
        "Event": Event,
        "Stream": Stream,
        "current_stream": lambda device=None: Stream(device),
        "default_stream": lambda device=None: Stream(device),
        "stream": lambda stream: stream or contextlib.nullcontext(),
    }
    for name, value in new.items():
        setattr(torch.cuda, name, value)
    new = {
        "is_available": lambda: True,
        "device_count": lambda: n,
        "current_accelerator": lambda *args, **kwargs: torch.device("cuda"),
        "current_device_index": current_device,
        "set_device_index": set_device,
        "current_stream": lambda device=None: Stream(device),
        "set_stream": nothing,
        "synchronize": nothing,
        "device_index": Device,
    }
    for name, value in new.items():
        setattr(torch.accelerator, name, value)


def _patch_threads():
    run = threading.Thread.run

    def run_in_the_mode(self):
        with _entered():
            run(self)

    threading.Thread.run = run_in_the_mode


def _patch_parameters():
    make = nn.Parameter.__new__

    def tagged(cls, data=None, requires_grad=True):
        param = make(cls, data, requires_grad)
        return param if data is None else set_tag(param, tag_of(data))

    nn.Parameter.__new__ = tagged


def _patch_functions():
    """Follow the tensors in the backward pass of custom functions too; autograd calls it outside of the mode."""
    apply = next(vars(c)["apply"] for c in torch.autograd.Function.__mro__ if "apply" in vars(c))  # a classmethod
    backward = torch.autograd.function.BackwardCFunction.apply

    def apply_and_note(cls, *args, **kwargs):
        result = apply.__get__(None, cls)(*args, **kwargs)
        outputs = result if isinstance(result, tuple) else (result,)
        nodes = [out.grad_fn for out in outputs if isinstance(out, T) and out.grad_fn is not None]
        if nodes:
            nodes[0].pretended = [tag_of(out) if isinstance(out, T) else CPU for out in outputs]
        return result

    def backward_in_the_mode(self, *grads):
        for grad, device in zip(grads, getattr(self, "pretended", ()), strict=False):
            if isinstance(grad, T):
                set_tag(grad, device)
        with _entered():
            return backward(self, *grads)

    torch.autograd.Function.apply = classmethod(apply_and_note)
    torch.autograd.function.BackwardCFunction.apply = backward_in_the_mode


def _patch_optimizers():
    """Group tensors by their pretend GPU; the C++ of foreach functions would take all for one group."""

    def grouped(tensorlistlist, with_indices=False):
        groups = {}
        for i, first in enumerate(tensorlistlist[0]):
            lists, indices = groups.setdefault((tag_of(first), first.dtype), ([[] for _ in tensorlistlist], []))
            indices.append(i)
            for mine, given in zip(lists, tensorlistlist, strict=True):
                if given:
                    mine.append(given[i])
        return groups

    for name in ("torch.utils._foreach_utils", "torch.optim.optimizer", "torch.nn.utils.clip_grad"):
        importlib.import_module(name)._group_tensors_by_device_and_dtype = grouped


def _patch_load():
    load = torch.load

    def to_devices(file, map_location=None, **kwargs):
        device = as_device(map_location) if isinstance(map_location, (str, torch.device)) else None
        found = load(file, map_location="cpu" if device is not None else map_location, **kwargs)
        if device is not None:
            for tensor in tensors_in(found):
                set_tag(tensor, device)
        return found

    torch.load = to_devices


def _patch_comm():
    """Python stand-ins for the C++ of nn.DataParallel, with the same contract."""

    def broadcast_coalesced(tensors, devices, buffer_size=0):
        devices = [as_device(d) for d in devices]
        return [[t if tag_of(t) == d else _to(T.to, t.detach(), d) for t in tensors] for d in devices]

    def reduce_add_coalesced(inputs, destination=None, buffer_size=0):
        device = as_device(destination if destination is not None else "cuda")
        return [set_tag(sum(_to(T.to, t, device) for t in tensors), device) for tensors in zip(*inputs, strict=True)]

    def scatter(tensor, devices=None, chunk_sizes=None, dim=0, streams=None, *, out=None):
        pieces = tensor.split(list(chunk_sizes), dim) if chunk_sizes else tensor.chunk(len(devices), dim)
        return tuple(_to(T.to, piece, as_device(d)) for piece, d in zip(pieces, devices, strict=False))

    def gather(tensors, dim=0, destination=None, *, out=None):
        device = CPU if destination == -1 else as_device("cuda" if destination is None else destination)
        return set_tag(torch.cat([_to(T.to, t, CPU) for t in tensors], dim), device)

    def broadcast(tensor, devices=None, *, out=None):
        return tuple(_to(T.to, tensor, as_device(d)) for d in devices)

    nn.parallel._functions._get_stream = lambda device: None
    for function in (broadcast_coalesced, reduce_add_coalesced, scatter, gather, broadcast):
        setattr(comm, function.__name__, function)


_COLLECTIVES = (
    "all_reduce broadcast reduce all_gather all_gather_into_tensor reduce_scatter reduce_scatter_tensor gather scatter "
    "all_to_all all_to_all_single send recv isend irecv"
).split()


def _patch_distributed():
    """A process group whose "nccl" refuses CPU tensors; all of them send by gloo."""
    init, get_backend, new_group = dist.init_process_group, dist.get_backend, dist.new_group
    barrier = dist.barrier

    def init_process_group(backend=None, *args, device_id=None, **kwargs):
        name = str(backend or "cpu:gloo,cuda:nccl")
        init("gloo" if "nccl" in name else backend, *args, **kwargs)
        _state.backends[None] = name

    def kind(group):
        return _state.backends.get(group, _state.backends.get(None, "gloo"))

    def group_of(backend=None, **kwargs):
        group = new_group(backend="gloo" if backend and "nccl" in str(backend) else backend, **kwargs)
        _state.backends[group] = str(backend) if backend else kind(None)
        return group

    def check(tensors, group):
        for tensor in tensors:
            if kind(group) == "nccl" and tag_of(tensor).type == "cpu":
                raise RuntimeError("No backend type associated with device type cpu")
            if (
                kind(group).endswith("nccl")
                and tag_of(tensor).type == "cuda"
                and tag_of(tensor).index != current_device()
            ):
                raise RuntimeError(
                    f"Duplicate GPU detected: this rank computes on GPU {current_device()}, got {tag_of(tensor)}."
                )

    def checked(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            check(tensors_in([args, kwargs]), kwargs.get("group"))
            with torch._C.DisableTorchFunction():
                return function(*args, **kwargs)

        return wrapper

    def barrier_of(group=None, async_op=False, device_ids=None):
        if "nccl" in kind(group):  # NCCL takes the numbers of GPUs, gloo refuses them
            return barrier(group, async_op)
        return barrier(group, async_op, device_ids)

    dist.init_process_group = dist.distributed_c10d.init_process_group = init_process_group
    dist.barrier = barrier_of
    dist.get_backend = lambda group=None: kind(group) if "nccl" in kind(group) else get_backend(group)
    dist.new_group = lambda ranks=None, timeout=None, backend=None, **kwargs: group_of(
        backend, ranks=ranks, timeout=timeout, **kwargs
    )
    for name in _COLLECTIVES:
        setattr(dist, name, checked(getattr(dist, name)))
    for name in ("isend", "irecv"):  # P2POp compares its function with these
        setattr(dist.distributed_c10d, name, getattr(dist, name))
    _patch_ddp(check)


def _patch_ddp(check):
    """DDP that refuses what `check` refuses, and whose hooks see gradients on the device of its parameters."""
    ddp = nn.parallel.DistributedDataParallel
    make, hook = ddp.__init__, ddp.register_comm_hook

    @functools.wraps(make)
    def make_checked(self, module, *args, **kwargs):
        check(list(module.parameters()), kwargs.get("process_group"))
        make(self, module, *args, **kwargs)

    def register_comm_hook(self, state, fn):
        device = next(self.parameters()).device

        def tagged(state, bucket):
            with _entered():
                return fn(state, Bucket(bucket, device))

        hook(self, state, functools.wraps(fn)(tagged))

    ddp.__init__, ddp.register_comm_hook = make_checked, register_comm_hook


class Bucket:
    """DDP's bucket of gradients, whose tensors pretend to be on `device`."""

    def __init__(self, bucket, device):
        self.bucket, self.device = bucket, device

    def buffer(self):
        return set_tag(self.bucket.buffer(), self.device)

    def gradients(self):
        return [set_tag(grad, self.device) for grad in self.bucket.gradients()]

    def parameters(self):
        return [set_tag(param, self.device) for param in self.bucket.parameters()]

    def __getattr__(self, name):
        return getattr(self.bucket, name)


def install(n):
    """Give this process `n` pretend GPUs, from now on to its end; fewer if CUDA_VISIBLE_DEVICES names fewer."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        n = min(n, len([name for name in visible.split(",") if name.strip()]))
    if n == 0:
        return
    import torch._dynamo  # noqa: F401  # optimizers import it, and it examines the functions of torch.cuda

    torch.set_num_threads(1)  # real GPUs leave the cores alone
    _state.count = n
    _patch_cuda(n)
    _patch_threads()
    _patch_parameters()
    _patch_functions()
    _patch_optimizers()
    _patch_load()
    _patch_comm()
    if dist.is_available():
        _patch_distributed()
    _mode.__enter__()
