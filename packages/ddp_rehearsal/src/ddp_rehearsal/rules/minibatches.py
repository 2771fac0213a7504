"""The minibatches of ranks, as the digests of their rows."""

from collections.abc import Iterable
from itertools import combinations

from ddp_rehearsal.observations import Forward, LoaderBegins, Observed, RankObservations

__all__ = ["equal_rows", "forwards_of", "loader_of", "minibatch_rows", "same_steps", "training_loader"]


def minibatch_rows(one: RankObservations) -> dict[int, list[str]]:
    """Return {step: the rows of its minibatch} of the network that was called first."""
    passes: dict[int, list[tuple[str, ...]]] = {}
    for forward in forwards_of(one):
        of_step = passes.setdefault(forward.step, [])
        if forward.rows not in of_step:  # a second pass over a minibatch adds no examples
            of_step.append(forward.rows)
    return {step: [row for rows in of_step for row in rows] for step, of_step in passes.items()}


def forwards_of(one: RankObservations) -> list[Forward]:
    """Return the forward passes for training of the network that was called first; in evaluation mode if all are."""
    forwards = [f for f in one.of(Forward) if f.rows and f.model == one.of(Forward)[0].model]
    return [f for f in forwards if f.training] or forwards


def equal_rows(observed: Observed, ranks: Iterable[int]) -> bool:
    """Return whether two of the ranks had equal minibatches in all steps that both have made."""
    return any(same_steps(observed[a], observed[b]) for a, b in combinations(ranks, 2))


def same_steps(one: RankObservations, other: RankObservations) -> list[int]:
    """Return the steps of two ranks if their minibatches are equal in all of them, else []."""
    rows, others = minibatch_rows(one), minibatch_rows(other)
    steps = sorted(set(rows) & set(others))
    return steps if all(rows[s] == others[s] for s in steps) else []


def training_loader(one: RankObservations) -> LoaderBegins | None:
    """Return how the DataLoader of a rank's first minibatch of training began."""
    first = next(iter(forwards_of(one)), None)
    return loader_of(one, first.loader) if first else None


def loader_of(one: RankObservations, loader: int) -> LoaderBegins | None:
    """Return how a DataLoader of a rank began its first epoch."""
    return next((begins for begins in one.of(LoaderBegins) if begins.loader == loader), None)
