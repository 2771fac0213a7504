"""Ways to write an MLP on ranks: which of them computes what one device computes, gradients included?"""

from collections.abc import Callable
from typing import Any

import torch

from ..chapter_13.one_device import distance
from .autograd_collectives import add_partials, copy_to_ranks, part_along

__all__ = ["mlps_right"]

Mlps = dict[str, Callable[[], torch.Tensor]]


def mlps_right(make_mlps: Callable[..., Mlps]) -> dict[str, list[bool]]:
    """Return for each MLP whether outputs, gradient of X, and gradient of the bias are those of one device.

    It runs on a rank, and every rank must call it.

    Args:
        make_mlps: make_mlps(X, up, down, bias, f, g) returns {name: a function that computes the MLP}. On ranks `up` is
            cut by outputs and `down` by inputs, and X and the bias are complete; f and g are `copy_to_ranks` and
            `add_partials`. On one device all is complete, and f and g change nothing.
    """
    generator = torch.Generator().manual_seed(0)
    shapes = ((5, 6), (12, 6), (6, 12), (6,))
    tensors = [torch.randn(n, dtype=torch.float64, generator=generator) for n in shapes]
    X, up, down, bias = (tensor.requires_grad_() for tensor in tensors)
    whole = make_mlps(X, up, down, bias, _as_it_is, _as_it_is)
    ours = make_mlps(X, part_along(up, 0), part_along(down, 1), bias, copy_to_ranks, add_partials)
    right = {}
    for name in whole:
        on_one, here = (_with_gradients(mlps[name], X, bias) for mlps in (whole, ours))
        right[name] = [distance([a], [b]) < 1e-9 for a, b in zip(on_one, here, strict=True)]
    return right


def _as_it_is(X: Any) -> Any:
    return X


def _with_gradients(mlp: Callable[[], torch.Tensor], X: torch.Tensor, bias: torch.Tensor) -> list[torch.Tensor]:
    Y = mlp()
    return [Y.detach(), *torch.autograd.grad(Y.square().mean(), (X, bias))]
