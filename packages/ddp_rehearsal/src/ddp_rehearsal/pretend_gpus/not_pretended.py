"""What is not pretended: each says so in one sentence."""

import copy
import sys
from collections.abc import Callable
from typing import Any

import torch

from ddp_rehearsal.pretend_gpus.devices import check_fork, replace
from ddp_rehearsal.pretend_gpus.said_once import say_once

__all__ = ["refuse_the_rest"]

COMPILE = "torch.compile returns the module or function as it is: nothing is compiled."
SCRIPT = "torch.jit returns the module or function as it is: nothing is compiled."
SMI = "nvidia-smi knows no pretend GPU. A script that counts GPUs by it may look at CUDA_VISIBLE_DEVICES first: set it."
GRAPHS = "pretend GPUs: CUDA graphs are not pretended. Run the step without capturing it."
REST = "pretend GPUs: {} needs a real GPU, and is not pretended. Leave it out, or run it on a machine with GPUs."
DEFAULT_TYPE = "pretend GPUs: this default type is not pretended. Write torch.set_default_device('cuda') in its place."
ABOUT_HARDWARE = (
    "_sleep utilization temperature power_draw clock_rate memory_usage device_memory_used list_gpu_processes"
).split()
ABOUT_ALLOCATOR = "_record_memory_history _snapshot _dump_snapshot memory_snapshot caching_allocator_alloc".split()


def _compile(model: object = None, **kwargs: Any) -> Any:
    """`torch.compile`, as a function and as a decorator."""
    say_once(COMPILE)
    if isinstance(model, torch.nn.Module):
        vars(model)["_orig_mod"] = copy.copy(model)  # which scripts ask for: the same parameters, and none itself
    return (lambda function: function) if model is None else model


def _not_compiled(compile: Callable[..., Any]) -> Callable[..., Any]:
    """Return what takes the place of `torch.jit.script` or `trace`, whose programs compute without asking for devices.

    PyTorch's own use of them stays: it compiles before a tensor is on a GPU.
    """

    def give_back(what: object, *args: Any, **kwargs: Any) -> Any:
        if sys._getframe(1).f_globals.get("__name__", "").partition(".")[0] == "torch":
            return compile(what, *args, **kwargs)
        say_once(SCRIPT)
        if isinstance(what, torch.nn.Module):
            vars(what)["save"] = _refused("a file of TorchScript")
        return what

    return give_back


class Profiler:
    """`torch.cuda.cudart()`: the beginning and the end of a profile do nothing, and all else is refused."""

    def cudaProfilerStart(self) -> int:  # noqa: N802
        """Return 0, as where no profiler looks on."""
        return 0

    cudaProfilerStop = cudaProfilerStart  # noqa: N815

    def __getattr__(self, name: str) -> Any:
        return _refused(f"torch.cuda.cudart().{name}")


class NoGraph:
    """`torch.cuda.CUDAGraph` and its relatives."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(GRAPHS)


def _refused(name: str) -> Any:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(REST.format(name))

    return refuse


def _lazy_init() -> None:
    check_fork()
    _refused("this call")()


def _see_program(event: str, args: Any) -> None:
    """An audit hook of Python; its first arguments are the program and its arguments."""
    if event in ("subprocess.Popen", "os.system") and "nvidia-smi" in str(args[:2]):
        say_once(SMI)


def refuse_the_rest() -> None:
    """Let what is not pretended say so."""
    set_type = torch.set_default_tensor_type

    def set_default_tensor_type(kind: Any) -> None:
        if "cuda" in str(kind):
            raise NotImplementedError(DEFAULT_TYPE)
        set_type(kind)

    replace({"compile": _compile, "set_default_tensor_type": set_default_tensor_type}, torch)
    replace({name: _not_compiled(getattr(torch.jit, name)) for name in ("script", "trace")}, torch.jit)
    replace({name: NoGraph for name in ("CUDAGraph", "graph", "make_graphed_callables")}, torch.cuda)
    replace({name: _refused(f"torch.cuda.{name}") for name in ABOUT_HARDWARE} | {"cudart": Profiler}, torch.cuda)
    replace({"start": lambda: None, "stop": lambda: None}, torch.cuda.profiler)
    replace({name: _refused(f"torch.cuda.memory.{name}") for name in ABOUT_ALLOCATOR}, torch.cuda, torch.cuda.memory)
    # PyTorch calls this before anything that needs CUDA; nothing that is pretended does
    replace({"_lazy_init": _lazy_init}, torch.cuda)
    sys.addaudithook(_see_program)
