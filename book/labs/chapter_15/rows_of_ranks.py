"""A row of the table of splits for each rank of a pipeline: is it the network of one device, what is held and sent?"""

from collections.abc import Callable
from typing import Any

from d2lite.workers import Workers
from notebook_ranks.shared.format import format_bytes

from ..chapter_14.split_table import apart_after_four_steps, counted_step

__all__ = ["split_row"]


def split_row(workers: Workers, name: str, cut: Callable[[Any], Any], step: Callable[..., Any]) -> int:
    """Print a row for each rank, and return the bytes that rank 0 sends in a step.

    Args:
        workers: the ranks.
        name: what the row is called.
        cut: leaves this rank its parts of a network, and returns them.
        step: step(net, momenta, X, y, lr=...) returns this rank's share of the loss.

    Raises:
        ValueError: if four steps do not give the weights and the losses of one device.
    """
    found = workers.run(apart_after_four_steps, cut, step)
    apart, right = max(row[0] for row in found), found[0][2]
    losses = [sum(of_step) for of_step in zip(*(row[1] for row in found), strict=True)]
    off = max(abs(a - b) for a, b in zip(losses, right, strict=True))
    if not (apart < 1e-9 and off < 1e-9):
        raise ValueError(
            f"{name}: expected the network of one device within 1e-9, got weights that are {apart:.0e} and losses that "
            f"are {off:.0e} apart. Compare the gradients of the first step."
        )
    sent = []
    for rank, (held, calls) in enumerate(workers.run(counted_step, cut, step)):
        sent.append(sum(call.sent_n_bytes for call in calls))
        counts = f"holds {format_bytes(held)}, {len(calls)} calls, sends {format_bytes(sent[-1])}"
        print(f"{name:16} rank {rank}: {apart:.0e} from one device; {counts}")
    return sent[0]
