"""The collectives that a rank has called, printed: one line per kind and group."""

from collections.abc import Iterable

from d2lite.profiling import CollectiveCall
from notebook_ranks.shared.format import format_bytes

__all__ = ["print_calls"]


def print_calls(calls: Iterable[CollectiveCall]) -> None:
    """Print how often a rank has called each collective in each group, and how many bytes it has sent there."""
    together: dict[tuple[str, tuple[int, ...]], list[float]] = {}
    for call in calls:
        together.setdefault((call.name, tuple(call.ranks)), []).append(call.sent_n_bytes)
    for (name, ranks), sent in together.items():
        group = f"{', '.join(map(str, ranks[:3]))}{' ...' if len(ranks) > 3 else ''} ({len(ranks)} ranks)"
        print(f"  {name:14} {len(sent):4} calls in the group {group}: {format_bytes(sum(sent))}")
