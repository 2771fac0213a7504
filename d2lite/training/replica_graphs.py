"""Graphs of their own for replicas on CPU cores, so that each has a thread for its backward pass.

Autograd runs the CPU part of one graph in one thread. Here the graphs of all replicas become one node of the caller's
graph. The backward pass of that node runs each of them in a thread of its own, one thread per core.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge, saved_tensors_hooks

from d2lite.replica_threads import in_replica, parallel_apply
from d2lite.training.pytree import map_tensors, tensors_in

__all__ = ["apply_in_own_graphs", "leaf_of"]

_ACCUMULATE: Any = type(get_gradient_edge(torch.zeros((), requires_grad=True)).node)  # the last node before a leaf
Grads = Sequence[torch.Tensor | None]
Pairs = Sequence[tuple[torch.Tensor, torch.Tensor]]


@dataclass
class _Graph:
    """A replica's graph from `inputs`, pairs (its leaf, equal tensor of the caller's graph), to its `ends`."""

    ends: Sequence[torch.Tensor]
    inputs: Pairs


def apply_in_own_graphs(
    fn: Callable[..., Any],
    modules: Sequence[nn.Module],
    params: Sequence[Pairs],
    shards: Sequence[Any],
    devices: Sequence[torch.device],
) -> list[Any]:
    """Return [fn(module, *shard) for each replica], each computed in a graph of its own, and connected by one node.

    The parameters of the `modules` were made by `leaf_of`; `params` are their pairs, (leaf in the replica, parameter
    of the caller's graph). `shards` are further arguments of `fn`, tensors of the caller's graph.
    """
    leaves = [map_tensors(_as_leaf, shard) for shard in shards]
    with _no_saved_tensors_hooks() if in_replica() else nullcontext():  # other threads have none of the caller's hooks
        calls = [map_tensors(_writable, shard) for shard in leaves]
        outputs = parallel_apply(fn, devices, modules, *zip(*calls, strict=True))
    graphs = [
        _graph_of(output, own_params, list(zip(tensors_in(*inner), tensors_in(*outer), strict=True)))
        for output, own_params, inner, outer in zip(outputs, params, leaves, shards, strict=True)
    ]
    joined = iter(_join(graphs, devices))
    return [map_tensors(lambda tensor: next(joined) if tensor.requires_grad else tensor, output) for output in outputs]


def leaf_of(tensor: torch.Tensor, copy: torch.Tensor) -> torch.Tensor:
    """Return `copy`, a copy of a parameter or buffer without a graph, as a leaf of a replica's graph."""
    if isinstance(tensor, nn.Parameter):
        copy = nn.Parameter(copy, requires_grad=False)
    if tensor.requires_grad:
        copy.requires_grad_().register_post_accumulate_grad_hook(_refuse)
    return copy


def _refuse(leaf: torch.Tensor) -> None:
    """Raise RuntimeError: a backward pass has reached this leaf of a replica, and did not begin at an output."""
    raise RuntimeError(
        "DataParallel: expected a loss of what `forward` returns, got one of a tensor that left it as an attribute, "
        "through a hook, in a list or in an output of unknown type, or a `backward()` inside of it. Return it: "
        "otherwise the gradients of the other replicas are missing."
    )


def _as_leaf(tensor: torch.Tensor) -> torch.Tensor:
    """Return a leaf of a new graph with the memory of `tensor`; `tensor` itself if it requires no gradient."""
    return tensor.detach().requires_grad_() if tensor.requires_grad else tensor


def _writable(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone() if tensor.requires_grad else tensor  # a layer may write into its input, but not into a leaf


def _graph_of(output: Any, params: Pairs, shard: Pairs) -> _Graph:
    """Return the graph of one replica's output; `params` and `shard` are pairs (inner, outer).

    Its inputs are the parameters of the replica, its shard, and what else the graph reaches: tensors that are neither.
    """
    inputs = {id(inner): (inner, outer) for inner, outer in params}
    inputs |= {id(inner): (inner, outer) for inner, outer in shard if inner.requires_grad}
    ends = [tensor for tensor in tensors_in(output) if tensor.requires_grad]
    others = [tensor for tensor in _leaves_of(ends) if id(tensor) not in inputs]
    if any(tensor._backward_hooks for tensor in others):  # torch has no public question for it
        raise RuntimeError(
            "module: expected parameters with hooks to be used through the module itself, got one that is used in a "
            "different way (a function that holds the module, or a tensor that is not registered). The hook would run "
            "once per replica. Use `self` in `forward`, or register the parameter."
        )
    return _Graph(ends, [*inputs.values(), *((tensor, tensor) for tensor in others)])


def _join(graphs: Sequence[_Graph], devices: Sequence[torch.device]) -> list[torch.Tensor]:
    """Return the ends of all graphs, one graph after the other, connected with the inputs by one node."""
    if not any(graph.ends for graph in graphs):
        return []
    outer = [tensor for graph in graphs for _, tensor in graph.inputs]
    with _no_saved_tensors_hooks():
        return list(_Joined.apply(graphs, devices, *outer))


class _Joined(torch.autograd.Function):
    """The graphs of all replicas as one node."""

    @staticmethod
    def forward(
        ctx: Any, graphs: Sequence[_Graph], devices: Sequence[torch.device], *outer: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.devices, ctx.inputs = devices, [graph.inputs for graph in graphs]
        ctx.lengths = [len(graph.ends) for graph in graphs]
        ends = list(chain.from_iterable(graph.ends for graph in graphs))
        ctx.save_for_backward(*ends)  # with their graphs: autograd frees them together with the caller's graph
        return tuple(end.detach() for end in ends)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "DataParallel: expected a backward pass without create_graph=True, got one that asks for gradients "
                "with a graph. Take second derivatives of the wrapped network itself: net.module."
            )
        graphs = [_Graph(ends, i) for ends, i in zip(_cut(ctx.saved_tensors, ctx.lengths), ctx.inputs, strict=True)]
        found = parallel_apply(_gradients, ctx.devices, graphs, _cut(grads, ctx.lengths))
        return None, None, *chain.from_iterable(found)


def _gradients(graph: _Graph, grads: Grads) -> Grads:
    """Return the gradients of one graph's inputs, None for what its ends do not depend on."""
    used = [(end, grad) for end, grad in zip(graph.ends, grads, strict=True) if grad is not None]
    if not used or not graph.inputs:
        return [None] * len(graph.inputs)
    ends, ends_grads = zip(*used, strict=True)
    leaves = [leaf for leaf, _ in graph.inputs]
    return torch.autograd.grad(ends, leaves, ends_grads, retain_graph=True, allow_unused=True)


def _leaves_of(ends: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the leaves that the graph of `ends` reaches."""
    nodes: list[Any] = [tensor.grad_fn for tensor in ends]
    seen, leaves = set(), {id(tensor): tensor for tensor in ends if tensor.is_leaf}
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, _ACCUMULATE):
            leaves[id(node.variable)] = node.variable
        nodes += [following for following, _ in node.next_functions]
    return list(leaves.values())


def _no_saved_tensors_hooks() -> AbstractContextManager[None]:
    """Return a context in which tensors are saved as they are: hooks of the caller would cut them off their graphs.

    detach() breaks the cycle node -> saved output -> node, which would never be freed. Autograd reattaches an output to
    its node when it unpacks it.
    """
    return saved_tensors_hooks(torch.Tensor.detach, lambda tensor: tensor)


def _cut(values: Sequence[Any], lengths: Sequence[int]) -> list[Sequence[Any]]:
    """Return `values` as consecutive pieces of these lengths."""
    rest = iter(values)
    return [list(islice(rest, length)) for length in lengths]
