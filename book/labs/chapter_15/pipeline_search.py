"""The shortest step that any schedule of a small pipeline can have, found by an exhaustive search."""

from dataclasses import dataclass
from itertools import product

from notebook_ranks.shared.checks import positive_int, true_or_false

__all__ = ["shortest_step"]

# Of a rank: the forward passes, input gradients, weight gradients begun; the last pass; how long it still takes.
_Rank = tuple[int, int, int, str, int]


def shortest_step(
    num_ranks: int,
    num_microbatches: int,
    most_held: int,
    forward: int = 1,
    backward: int = 2,
    split: bool = False,
) -> int:
    """Return the shortest time of a step, in the unit of `forward` and `backward`, with one stage per rank.

    All ways to order the passes are tried; for more than four ranks or eight microbatches this takes long. Microbatches
    are alike, so each rank takes them in their order. Sending is free.

    Args:
        num_ranks: how many ranks, and stages, there are.
        num_microbatches: how many microbatches there are.
        most_held: on no rank may there be more microbatches at a time between forward pass and end of backward pass.
        forward: units of time of a forward pass.
        backward: units of time of a backward pass; if it is split, an even number.
        split: whether a backward pass may be computed in its two halves, I and W.

    Raises:
        ValueError: if a number is not above 0, or `backward` is odd and `split` is True.
        TypeError: if a number is no whole number.

    Example:
        >>> shortest_step(num_ranks=2, num_microbatches=4, most_held=4)
        15
        >>> shortest_step(num_ranks=2, num_microbatches=4, most_held=1)
        24
    """
    for name, number in {"num_ranks": num_ranks, "num_microbatches": num_microbatches, "most_held": most_held}.items():
        positive_int(name, number)
    positive_int("forward", forward)
    positive_int("backward", backward)
    if true_or_false("split", split) and backward % 2:
        raise ValueError(f"backward: expected an even number, which can be split, got {backward}.")
    work = num_microbatches * (forward + backward)
    most = num_microbatches * num_ranks * (forward + backward)  # one microbatch after the other
    return next(
        limit
        for limit in range(work, most + 1)
        if _Search(
            num_ranks=num_ranks,
            m=num_microbatches,
            most_held=most_held,
            forward=forward,
            backward=backward,
            split=split,
            limit=limit,
        ).fits()
    )


@dataclass(kw_only=True)
class _Search:
    """Whether a schedule ends within `limit`: a search by depth over what each rank begins at each moment."""

    num_ranks: int
    m: int
    most_held: int
    forward: int
    backward: int
    split: bool
    limit: int

    def __post_init__(self) -> None:
        half = self.backward // 2
        self.lasts = {"F": self.forward, "B": self.backward, "I": half, "W": half}
        self.failed: set[tuple[int, tuple[_Rank, ...]]] = set()

    def fits(self) -> bool:
        return self._ends(0, ((0, 0, 0, "", 0),) * self.num_ranks)

    def _ends(self, now: int, ranks: tuple[_Rank, ...]) -> bool:
        if all(weights == self.m and not left for _, _, weights, _, left in ranks):
            return True
        if (now, ranks) in self.failed or any(now + self._left(i, one) > self.limit for i, one in enumerate(ranks)):
            return False
        for choice in product(*(self._choices(i, ranks) for i in range(len(ranks)))):
            later = tuple((f, b, w, kind, max(left - 1, 0)) for f, b, w, kind, left in choice)
            if self._ends(now + 1, later):
                return True
        self.failed.add((now, ranks))
        return False

    def _left(self, i: int, one: _Rank) -> int:
        """Return the least time from now on until rank i, and the stages before it, can have ended."""
        forwards, inputs, weights, _, left = one
        half = self.lasts["B"] - self.lasts["I"]
        own = left + (self.m - forwards) * self.lasts["F"]
        own += (self.m - inputs) * self.lasts["I"] + (self.m - weights) * half
        if inputs == self.m:
            return own
        if not self.split:
            return own + i * self.lasts["B"]
        later = min(self.m - weights, self.most_held) - 1  # W's that may follow the last I; stage 0 still has one
        return own + max(0, i * self.lasts["I"] - later * half)

    def _choices(self, i: int, ranks: tuple[_Rank, ...]) -> list[_Rank]:
        """Return what rank i may do now: go on, begin a pass, or wait."""
        forwards, inputs, weights, kind, left = one = ranks[i]
        if left:
            return [one]
        done = [self._done(rank) for rank in ranks]
        choices: list[_Rank] = []
        if inputs < done[i][0] and (i == self.num_ranks - 1 or inputs < done[i + 1][1]):
            if not self.split or inputs == weights:
                choices.append((forwards, inputs + 1, weights + 1, "B", self.lasts["B"]))
            if self.split:
                choices.append((forwards, inputs + 1, weights, "I", self.lasts["I"]))
        if forwards < self.m and forwards - weights < self.most_held and (i == 0 or forwards < done[i - 1][0]):
            choices.append((forwards + 1, inputs, weights, "F", self.lasts["F"]))
        if self.split and weights < done[i][1]:
            choices.append((forwards, inputs, weights + 1, "W", self.lasts["W"]))
        return [*choices, one]

    def _done(self, one: _Rank) -> tuple[int, int]:
        """Return how many forward passes and input gradients of a rank have ended."""
        forwards, inputs, _, kind, left = one
        return forwards - (kind == "F" and left > 0), inputs - (kind in ("B", "I") and left > 0)
