"""A row of the table of splits for each rank of a pipeline: is it the network of one device, what is held and sent?"""

from collections.abc import Callable
from typing import Any

from d2lite.workers import Workers
from notebook_ranks.shared.format import format_bytes

from ..chapter_14.split_table import counted_step, from_one_device

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
    apart = from_one_device(workers, name, cut, step)
    sent = []
    for rank, (held, calls) in enumerate(workers.run(counted_step, cut, step)):
        sent.append(sum(call.sent_n_bytes for call in calls))
        counts = f"holds {format_bytes(held)}, {len(calls)} calls, sends {format_bytes(sent[-1])}"
        print(f"{name:16} rank {rank}: {apart:.0e} from one device; {counts}")
    return sent[0]
