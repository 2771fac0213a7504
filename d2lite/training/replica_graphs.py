"""Graphs of their own for replicas on CPU cores, so that each has a thread for its backward pass.

Autograd runs the CPU part of one graph in one thread. Here the graphs of all replicas become one node of the caller's
graph. The backward pass of that node runs each of them in a thread of its own, one thread per core.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge, saved_tensors_hooks

from d2lite.parallel import parallel_apply

__all__ = ["Graph", "as_leaf", "isolate", "leaves_of", "no_saved_tensors_hooks"]

_ACCUMULATE: Any = type(get_gradient_edge(torch.zeros((), requires_grad=True)).node)  # the last node before a leaf
Grads = Sequence[torch.Tensor | None]


@dataclass
class Graph:
    """A replica's graph, from its inputs to its `ends`.

    `inputs` are pairs (leaf of this graph, tensor of the caller's graph with the same value).
    """

    ends: Sequence[torch.Tensor]
    inputs: Sequence[tuple[torch.Tensor, torch.Tensor]]


def as_leaf(tensor: torch.Tensor) -> torch.Tensor:
    """Return a leaf of a new graph with the memory of `tensor`; `tensor` itself if it requires no gradient."""
    return tensor.detach().requires_grad_() if tensor.requires_grad else tensor


def isolate(graphs: Sequence[Graph], devices: Sequence[torch.device]) -> list[torch.Tensor]:
    """Return the ends of all graphs, one graph after the other, connected with the inputs by one node."""
    if not any(graph.ends for graph in graphs):
        return []
    outer = [tensor for graph in graphs for _, tensor in graph.inputs]
    with no_saved_tensors_hooks():
        return list(_Isolated.apply(graphs, devices, *outer))


def no_saved_tensors_hooks() -> AbstractContextManager[None]:
    """Return a context in which tensors are saved as they are: hooks of the caller would cut them off their graphs.

    A node that keeps its own output by a hook would never be freed, so the hook gets it without its graph; autograd
    restores the graph.
    """
    return saved_tensors_hooks(torch.Tensor.detach, _same)


def leaves_of(ends: Sequence[torch.Tensor]) -> list[torch.Tensor]:
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


class _Isolated(torch.autograd.Function):
    """The graphs of all replicas as one node."""

    @staticmethod
    def forward(
        ctx: Any, graphs: Sequence[Graph], devices: Sequence[torch.device], *outer: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.devices, ctx.inputs = devices, [graph.inputs for graph in graphs]
        ctx.lengths = [len(graph.ends) for graph in graphs]
        ends = list(chain.from_iterable(graph.ends for graph in graphs))
        ctx.save_for_backward(*ends)  # with their graphs: autograd frees them together with the caller's graph
        return tuple(end.detach() for end in ends)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        again = torch.is_grad_enabled()  # the caller asks for gradients that have a graph
        graphs = [Graph(ends, i) for ends, i in zip(_cut(ctx.saved_tensors, ctx.lengths), ctx.inputs, strict=True)]
        outer_grads = _cut(grads, ctx.lengths)
        inner_grads = [[g if g is None or not again else as_leaf(g) for g in own] for own in outer_grads]
        found = parallel_apply(partial(_gradients, again=again), ctx.devices, graphs, inner_grads)
        if again:
            second = [
                Graph(
                    [grad for grad in own if grad is not None and grad.requires_grad],
                    [*graph.inputs, *((i, o) for i, o in zip(inner, outer, strict=True) if i is not o)],
                )
                for graph, own, inner, outer in zip(graphs, found, inner_grads, outer_grads, strict=True)
            ]
            ends = iter(isolate(second, ctx.devices))
            found = [[next(ends) if g is not None and g.requires_grad else g for g in own] for own in found]
        return None, None, *chain.from_iterable(found)


def _gradients(graph: Graph, grads: Grads, again: bool) -> Grads:
    """Return the gradients of one graph's inputs, None for what its ends do not depend on."""
    used = [(end, grad) for end, grad in zip(graph.ends, grads, strict=True) if grad is not None]
    if not used or not graph.inputs:
        return [None] * len(graph.inputs)
    ends, ends_grads = zip(*used, strict=True)
    leaves = [leaf for leaf, _ in graph.inputs]
    return torch.autograd.grad(ends, leaves, ends_grads, retain_graph=True, create_graph=again, allow_unused=True)


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _cut(values: Sequence[Any], lengths: Sequence[int]) -> list[Sequence[Any]]:
    """Return `values` as consecutive pieces of these lengths."""
    rest = iter(values)
    return [list(islice(rest, length)) for length in lengths]
