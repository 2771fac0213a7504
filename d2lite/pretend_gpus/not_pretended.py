"""What is not pretended: each says so in one sentence."""

from typing import Any

import torch

from d2lite.pretend_gpus.devices import replace
from d2lite.pretend_gpus.said_once import say_once

__all__ = ["refuse_the_rest"]

COMPILE = "torch.compile returns the module or function as it is: nothing is compiled."
GRAPHS = "pretend GPUs: CUDA graphs are not pretended. Run the step without capturing it."
REST = "pretend GPUs: this call needs a real GPU, and is not pretended. Leave it out, or run it on a machine with GPUs."


def _compile(model: Any = None, **kwargs: Any) -> Any:
    """`torch.compile`, as a function and as a decorator."""
    say_once(COMPILE)
    return (lambda function: function) if model is None else model


class NoGraph:
    """`torch.cuda.CUDAGraph` and its relatives."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(GRAPHS)


def _needs_a_gpu() -> None:
    """PyTorch calls this before anything that needs CUDA: nothing that is pretended does."""
    raise NotImplementedError(REST)


def refuse_the_rest() -> None:
    """Let what is not pretended say so."""
    replace({"compile": _compile}, torch)
    replace({"CUDAGraph": NoGraph, "graph": NoGraph, "make_graphed_callables": NoGraph}, torch.cuda)
    replace({"_lazy_init": _needs_a_gpu}, torch.cuda)
