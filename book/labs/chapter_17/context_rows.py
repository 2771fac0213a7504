"""What the checks of context parallelism need: queries that show a mistake, and a row of the table of splits."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from d2lite.workers import Workers
from notebook_ranks.shared.format import format_bytes

from ..chapter_14.split_table import counted_step, from_one_device

__all__ = ["context_row", "output_and_gradients", "random_qkv"]


def random_qkv(t: int = 13, heads: int = 4, d: int = 8) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Return ([q, k, v], w), each [2, t, heads, d] in 64-bit numbers, the same on every rank; q is 30 times larger."""
    generator = torch.Generator().manual_seed(0)
    q, k, v, w = torch.randn(4, 2, t, heads, d, dtype=torch.float64, generator=generator)
    return [30 * q, k, v], w


def output_and_gradients(
    attend: Callable[..., torch.Tensor], qkv: Sequence[torch.Tensor], w: torch.Tensor
) -> list[torch.Tensor]:
    """Return attend(q, k, v), and the gradients of q, k and v if the loss is the sum of w times the output."""
    leaves = [x.clone().requires_grad_() for x in qkv]
    out = attend(*leaves)
    return [out.detach(), *torch.autograd.grad((out * w).sum(), leaves)]


def context_row(
    workers: Workers, name: str, cut: Callable[[Any], Any], step: Callable[..., Any], formula: float
) -> None:
    """Print a row of the table of splits: four steps beside one device, what a rank holds, and what it sends.

    Args:
        workers: the ranks.
        name: what the row is called.
        cut: leaves a rank its places of a network, and returns it.
        step: step(net, momenta, X, y, lr=...) returns this rank's share of the loss.
        formula: the bytes that a rank should send in a step.

    Raises:
        ValueError: if four steps do not give the weights and the losses of one device.
    """
    apart = from_one_device(workers, name, cut, step)
    held, calls = workers.run(counted_step, cut, step)[0]
    sent = sum(call.sent_n_bytes for call in calls)
    counts = f"holds {format_bytes(held)}, {len(calls)} calls, sends {format_bytes(sent)}"
    print(f"context, {name:8} {apart:.0e} from one device; {counts}")
    print(f"{'':17} sent by the formula: {formula:,.0f} bytes, counted: {sent:,.0f}")
