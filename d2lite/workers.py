"""Ranks for the book: the pool of `notebook_ranks`, whose ranks share the memory of what chapters import."""

import warnings

from d2lite.messages import entry_about
from notebook_ranks import Workers as _Workers
from notebook_ranks import WorkersError
from notebook_ranks.rank_support import why_no_ranks
from notebook_ranks.shared.explained import explain_by

__all__ = ["Workers", "WorkersError", "warn_without_ranks"]

PRELOADED = (
    *("d2lite.training.from_scratch", "d2lite.training.concise", "d2lite.training.ddp"),
    *("d2lite.transformer", "d2lite.learner_ledger"),
)

explain_by(entry_about)


class Workers(_Workers):
    """A pool of `world_size` ranks, as `notebook_ranks.Workers`; forks share the memory of the book's modules.

    A collective fails after `timeout_s` seconds, and a rank that does not answer for so long is given up.

    Example:
        >>> with Workers(2) as workers:
        ...     workers.run(pow, 2, 3)
        [8, 8]
    """

    def __init__(self, world_size: int, timeout_s: float = 60) -> None:
        super().__init__(world_size, timeout_s, preload=PRELOADED)


def warn_without_ranks() -> None:
    """Warn that the cells with ranks will fail, on a system that has none; the first cell of a chapter calls this.

    Example:
        >>> warn_without_ranks()  # says nothing on Linux and macOS
    """
    if why := why_no_ranks():
        warnings.warn(
            f"This chapter starts processes, and the cells with `Workers`, `torchrun` or hosts will fail here. {why} "
            "Colab and Binder have ranks. The other cells run.",
            stacklevel=2,
        )
