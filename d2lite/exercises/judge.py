"""The score of an answer, and in words what is wrong with it, from the results of its cases."""

import html
from collections.abc import Iterable
from dataclasses import dataclass

from d2lite.exercises.exercise import Question
from d2lite.exercises.learner_time_limit import TOO_LONG
from d2lite.exercises.run_cases import CaseResult
from d2lite.figures.card import card

__all__ = ["NO_PROCESS", "Score", "judge"]

ENDLESS = "Is there a loop that never ends, or a call that waits for something that never comes?"
NO_PROCESS = "it cannot run in a process of its own"
_NOT_ATTEMPTED, _WRONG, _THINK = "not attempted", "What is wrong", "How to think"
NO_MEMORY = ("MemoryError", "can't allocate memory")


@dataclass(frozen=True)
class Score:
    """The result of a check: `right` of `total` cases, and in words what is wrong; `total` is 0 for no attempt."""

    name: str
    right: int
    total: int
    wrong: str = ""
    think: str = ""

    @property
    def solved(self) -> bool:
        """Whether every case is right."""
        return self.total > 0 and self.right == self.total

    @property
    def state(self) -> str:
        """The state of the answer, as a card has it: "nearly" if more than half of the cases are right."""
        if not self.total:
            return "not attempted"
        return "right" if self.solved else "nearly" if 2 * self.right > self.total else "wrong"

    def __str__(self) -> str:
        if not self.total:
            return (
                f"Exercise {self.name}: {_NOT_ATTEMPTED}. Fill in the function, run its cell, then run this one again."
            )
        if self.solved:
            return f"Exercise {self.name}: right in all {self.total} cases."
        lines = [f"Exercise {self.name}: right in {self.right} of {self.total} cases.", f"{_WRONG}: {self.wrong}"]
        return "\n".join(lines + ([f"{_THINK}: {self.think}"] if self.think else []))

    def _repr_html_(self) -> str:
        """Return the card, with the words of `str(score)`."""
        first, *lines = str(self).split("\n")
        head, _, rest = first.partition(": ")
        if rest.startswith(_NOT_ATTEMPTED):  # the card says so
            rest = rest.removeprefix(_NOT_ATTEMPTED).lstrip(". ")
        said = [f"<div><b>{html.escape(head)}.</b> {html.escape(rest[:1].upper() + rest[1:])}</div>"]
        for line in lines:
            name, colon, words = line.partition(": ")
            named = name in (_WRONG, _THINK) and colon
            text = f"<b>{name}:</b> {html.escape(words)}" if named else html.escape(line)
            said.append(f'<div style="white-space:pre-wrap">{text}</div>')
        return card(self.state, "".join(said))

    def _ipython_display_(self) -> None:
        """Show nothing: `check` has shown it."""


def judge(
    exercise: Question, seen: Iterable[tuple[int, CaseResult]], why_missing: str = "", thinks: bool = True
) -> Score:
    """Return the score of the results that came from all ranks, `seen` as (rank, result).

    `why_missing` says why others did not come, "" if they all did; the case in which it happened is added. `thinks`
    decides whether the score says how to think.
    """
    latest = {(rank, result.case): result for rank, result in seen}  # a result may come again, with its mistakes
    labels = list(exercise.cases())
    place = {label: i for i, label in enumerate(labels)}
    # case by case, and rank by rank: which rank was the first to answer decides nothing
    seen = sorted(
        ((rank, result) for (rank, _), result in latest.items()),
        key=lambda one: (place.get(one[1].case, len(place)), one[0]),
    )
    missing = [label for label in labels if any((i, label) not in latest for i in range(exercise.world_size))]
    if not missing:
        why_missing = ""  # the answer was not what took long
    elif why_missing and not why_missing.startswith(NO_PROCESS):
        why_missing = f"{why_missing.rstrip('.')} (case: {missing[0]})."
    right = sum(
        sum(o.right for _, o in seen if o.case == label) == exercise.world_size for label in labels
    )  # a case is right if it is right on all ranks
    if right == len(labels):
        return Score(exercise.name, right, len(labels))
    wrong, think = _explain(exercise, seen, why_missing)
    return Score(exercise.name, right, len(labels), wrong, think if thinks else "")


def _explain(exercise: Question, seen: list[tuple[int, CaseResult]], why_missing: str) -> tuple[str, str]:
    """Return (what is wrong, how to think)."""
    fits = set.intersection(*(set(o.fitting_mistakes) for _, o in seen)) if seen else set()
    if fits and not why_missing:
        mistake = exercise.mistakes[min(fits)]
        return mistake.wrong, mistake.think
    for rank, o in seen:
        place = _case_and_rank(exercise, rank, o)
        if o.unfit:
            return f"{o.unfit} ({place})", o.think or exercise.think
        if o.raised:
            if any(words in o.got for words in NO_MEMORY):
                return f"it needs too much memory ({place}).", exercise.think
            return f"it raised {o.got} ({place}).", exercise.think
    if why_missing:
        waits = next((mistake for mistake in exercise.mistakes if mistake.never_ends), None)
        if waits:
            return f"{why_missing} {waits.wrong}", waits.think
        return why_missing, ENDLESS if why_missing.startswith(TOO_LONG) else exercise.think
    if in_words := _in_all_cases([o for _, o in seen]):
        return in_words, exercise.think
    rank, first = next((rank, o) for rank, o in seen if not o.right)
    return f"expected {first.expected}, got {first.got} ({_case_and_rank(exercise, rank, first)}).", exercise.think


def _in_all_cases(seen: list[CaseResult]) -> str:
    """Return in words what is the same in all cases, or ""."""
    if all(o.nothing for o in seen):
        return "it returns nothing: is there a return with the result?"
    expected = {o.expected for o in seen}
    if len(expected) > 1 and len({o.got for o in seen}) == 1:
        return f"it gives {seen[0].got} in every case, whatever its arguments are."
    ratios = [o.ratio for o in seen if o.ratio is not None]
    if len(expected) > 1 and len(ratios) == len(seen) and max(ratios) - min(ratios) < 1e-6 * abs(ratios[0]):
        return f"in every case it gives {ratios[0]:.4g} times what is expected."
    return ""


def _case_and_rank(exercise: Question, rank: int, result: CaseResult) -> str:
    return f"case: {result.case}" + (f", rank {rank}" if exercise.world_size > 1 else "")
