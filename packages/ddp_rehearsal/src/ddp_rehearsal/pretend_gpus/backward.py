"""The backward pass on pretend GPUs: each gradient gets the device of its tensor.

Autograd makes gradients in C++, where no operation is followed.
"""

from collections.abc import Callable
from typing import Any

import torch

from ddp_rehearsal.pretend_gpus.devices import CPU, replace
from ddp_rehearsal.pretend_gpus.storages import device_of, each_tensor, own_device, place
from ddp_rehearsal.pretend_gpus.tensors import computing_on, following, is_argument

__all__ = ["leaves_of", "pretend_backward"]

INVALID_GRADIENT = "invalid gradient at index {} - expected device {} but got {}"
FUNCTION_RETURNED = "Function {} returned an " + INVALID_GRADIENT

T: Any = torch.Tensor


def pretend_backward() -> None:
    """Follow what hooks, custom functions and checkpointing compute in a backward pass, and place the gradients."""
    _pretend_backward()
    _pretend_functions()
    _pretend_saved_tensors()


def _pretend_backward() -> None:
    """Follow what Python computes while C++ runs backward: before, PyTorch has left the mode."""
    graph: Any = torch.autograd.graph
    run, make_grads = graph._engine_run_backward, torch.autograd._make_grads

    def make_placed(outputs: Any, grads: Any, *args: Any, **kwargs: Any) -> Any:
        made = make_grads(outputs, grads, *args, **kwargs)
        for output, given, grad in zip(outputs, grads, made, strict=True):
            if given is None and grad is not None and isinstance(output, T):
                place(grad, device_of(output))
        return made

    def run_following(outputs: Any, grads: Any, *args: Any, **kwargs: Any) -> Any:
        for i, (output, grad) in enumerate(zip(outputs, grads, strict=True)):
            is_tensor = isinstance(output, T)  # a pipeline has edges of the graph in place of outputs
            if is_tensor and grad is not None and grad.dim() and device_of(grad) != device_of(output):
                raise RuntimeError(INVALID_GRADIENT.format(i, device_of(output), device_of(grad)))
        leaves = leaves_of(outputs)
        with following():
            result = run(outputs, grads, *args, **kwargs)
            for leaf in leaves:
                leaf.grad  # noqa: B018  # what reads a gradient places it, so that its bytes are counted
        return result

    replace({"_engine_run_backward": run_following}, torch.autograd, graph)
    replace({"_make_grads": make_placed}, torch.autograd)


def leaves_of(outputs: object) -> list[torch.Tensor]:
    """Return the tensors whose gradients a backward pass adds up."""
    waiting = [t.grad_fn for t in each_tensor([outputs]) if t.grad_fn is not None]
    seen, leaves = set(waiting), []
    while waiting:
        node = waiting.pop()
        if hasattr(node, "variable"):
            leaves.append(node.variable)
        new = {below for below, _ in node.next_functions if below is not None} - seen
        seen |= new
        waiting += new
    return leaves


def _pretend_functions() -> None:
    """Follow the tensors of torch.autograd.Function; autograd calls its `backward` outside of any mode."""
    apply = next(vars(c)["apply"] for c in torch.autograd.Function.__mro__ if "apply" in vars(c))  # a classmethod
    node_class: Any = torch.autograd.function.BackwardCFunction
    backward = node_class.apply

    def apply_and_note(cls: Any, *args: Any, **kwargs: Any) -> Any:
        result = apply.__get__(None, cls)(*args, **kwargs)
        outputs = result if isinstance(result, tuple) else (result,)
        nodes = [out.grad_fn for out in outputs if isinstance(out, T) and out.grad_fn is not None]
        if nodes:
            nodes[0].pretended = [device_of(out) if isinstance(out, T) else CPU for out in outputs]
            nodes[0].taken_from = [device_of(arg) if isinstance(arg, T) else None for arg in args]
        return result

    def backward_following(self: Any, *grads: Any) -> Any:
        for grad, device in zip(grads, getattr(self, "pretended", ()), strict=False):
            if isinstance(grad, T):
                place(grad, device)
        with following():
            result = backward(self, *grads)
        found = result if isinstance(result, tuple) else (result,)
        for i, (grad, device) in enumerate(zip(found, getattr(self, "taken_from", ()), strict=False)):
            if isinstance(grad, T) and device is not None and device_of(grad) != device:
                raise RuntimeError(FUNCTION_RETURNED.format(type(self).__name__, i, device, device_of(grad)))
        return result

    torch.autograd.Function.apply = classmethod(apply_and_note)
    node_class.apply = backward_following


def _pretend_saved_tensors() -> None:
    """Place what autograd saves before a hook sees it (checkpointing compares the devices), and follow the hook."""
    hooks: Any = torch.autograd.graph.saved_tensors_hooks
    make = hooks.__init__

    def make_following(self: Any, pack_hook: Callable[..., Any], unpack_hook: Callable[..., Any]) -> None:
        def pack(tensor: torch.Tensor) -> Any:
            if own_device(tensor).type == "cpu" and not is_argument(tensor):  # an argument may be on another device
                place(tensor, computing_on())
            with following():
                return pack_hook(tensor)

        def unpack(packed: object) -> Any:
            with following():
                return unpack_hook(packed)

        make(self, pack, unpack)

    hooks.__init__ = make_following
