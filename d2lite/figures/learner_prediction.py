"""A prediction: what was asked, answered and found, when it counts as right or nearly, as text and as HTML.

A prediction comes from a ledger, a file that anyone may have edited. Unexpected values are left out, and every text
is escaped before it becomes HTML.
"""

import html
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from d2lite.figures.card import card
from notebook_ranks.shared.format import format_number, printable

__all__ = ["Answer", "Prediction", "as_answer", "as_text", "prediction_html"]

Answer = float | str
_MOST_CHARS = 300
_NEARLY, _NEARLY_MOST = 2.0, 0.5  # a number is nearly right up to 2 x `within`, and at most up to 50%


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """One prediction: the answers in the order in which they were given, and what was measured.

    `measured` is None before the measurement. `how` says how it was found: "measured", "counted" or "computed"; `on` is
    the label of the devices. A text is right if it is the measured one, a number if it differs by at most the fraction
    `within`. With `is_late` the first answer came after the measurement, and does not count. With a `disturbance`,
    which says what disturbed the measurement, no answer counts.
    """

    key: str
    question: str
    unit: str = ""
    kind: str = ""
    answers: tuple[Answer, ...] = ()
    measured: Answer | None = None
    how: str = "measured"
    on: str = ""
    within: float = 0.1
    is_late: bool = False
    disturbance: str = ""

    @classmethod
    def from_entry(cls, key: str, entry: Mapping[str, Any]) -> "Prediction":
        """Return the prediction of an entry of the ledger, without what is neither a number nor a text."""
        given, within = entry.get("answers"), as_answer(entry.get("within"))
        return cls(
            key=as_text(key),
            question=as_text(entry.get("question")),
            unit=as_text(entry.get("unit")),
            kind=as_text(entry.get("kind")),
            answers=tuple(a for a in map(as_answer, given if isinstance(given, list) else ()) if a is not None),
            measured=as_answer(entry.get("measured")),
            how=as_text(entry.get("how")) or "measured",
            on=as_text(entry.get("on")),
            within=within if isinstance(within, float) and within >= 0 else 0.1,
            is_late=entry.get("is_late") is True,
            disturbance=as_text(entry.get("disturbance")),
        )

    @property
    def first(self) -> Answer | None:
        """The first answer, which is the one that counts; None without one."""
        return self.answers[0] if self.answers else None

    @property
    def is_right(self) -> bool | None:
        """Whether the first answer was right; None if it does not count, or if there is nothing to compare."""
        return None if self.is_late or self.disturbance else self.fits(self.first)

    @property
    def pair(self) -> tuple[float, float] | None:
        """The first answer and the measured number; None unless the answer counts and both are above 0."""
        first, measured = self.first, self.measured
        if self.is_late or self.disturbance or not isinstance(first, float) or not isinstance(measured, float):
            return None
        return (first, measured) if first > 0 and measured > 0 else None

    def fits(self, answer: Answer | None) -> bool | None:
        """Return whether an answer is right, or None if there is nothing to compare."""
        if answer is None or self.measured is None or type(answer) is not type(self.measured):
            return None
        if isinstance(answer, float) and isinstance(self.measured, float):
            return self._is_within(answer, self.within)
        return answer == self.measured

    def state(self, answer: Answer | None) -> str:
        """Return the state of an answer, as a card has it.

        A number is "nearly" right if it is a little further off than a right one; "locked" is for nothing to compare.
        "not counted" is for a measurement that was disturbed.
        """
        if answer is None:
            return "not attempted"
        if self.disturbance and self.measured is not None:
            return "not counted"
        fits = self.fits(answer)
        if fits is None:
            return "locked"
        near = isinstance(answer, float) and self._is_within(answer, min(_NEARLY * self.within, _NEARLY_MOST))
        return "right" if fits else "nearly" if near else "wrong"

    def _is_within(self, answer: float, fraction: float) -> bool:
        assert isinstance(self.measured, float)
        return abs(answer - self.measured) <= fraction * abs(self.measured) * (1 + 1e-9)

    def shown(self, answer: Answer) -> str:
        """Return an answer or the measured value as text, with its unit."""
        if isinstance(answer, str):
            return answer
        unit = self.unit[:-1] if answer == 1 and re.fullmatch("[a-z]{3,}s", self.unit) else self.unit  # 1 step
        return format_number(answer) + ("" if self.unit in ("", "×", "%") else " ") + unit

    def verdict(self, answer: Answer | None) -> str:
        """Return how far an answer is from what was measured, in words; "" if there is nothing to compare."""
        fits = self.fits(answer)
        if fits is None:
            return ""
        if self.disturbance:
            return "not counted"
        if not (isinstance(answer, float) and isinstance(self.measured, float)):
            return "right" if fits else "wrong"
        if fits:
            return "right" if answer == self.measured else f"right, within {self.within:.0%}"
        if answer <= 0 or self.measured <= 0:
            return f"off by {self.shown(abs(answer - self.measured))}"
        if self.within == 0:  # what is counted has no percent
            return f"{format_number(abs(answer - self.measured))} too {'high' if answer > self.measured else 'low'}"
        ratio = answer / self.measured
        if 0.5 < ratio < 2:
            return f"{abs(ratio - 1):.0%} too {'high' if ratio > 1 else 'low'}"
        times = ratio if ratio > 1 else 1 / ratio
        return f"{format_number(times)} times too {'high' if ratio > 1 else 'low'}"

    def __str__(self) -> str:
        """The prediction in one line of text."""
        if self.measured is None:
            state = "no answer yet" if self.first is None else f"predicted {self.shown(self.answers[-1])}"
            return f"{self.question} {state}, not measured yet."
        said = "no answer" if self.first is None else f"predicted {self.shown(self.answers[-1])}"
        words = [said, f"{self.how} {self.shown(self.measured)}"]
        verdict = self.verdict(self.answers[-1]) if self.answers else ""
        why = f" {self.disturbance}" if self.disturbance else ""
        return f"{self.question} {', '.join(words)}{_on(self)}{': ' + verdict if verdict else ''}.{why}"


def prediction_html(prediction: Prediction, with_question: bool = True) -> str:
    """Return one prediction as HTML: the answer next to what was measured, with the devices."""
    answer = prediction.answers[-1] if prediction.answers else None
    boxes = [("you predicted", "no answer" if answer is None else prediction.shown(answer))]
    if answer is not None and len(prediction.answers) > 1:
        boxes.insert(0, ("first", prediction.shown(prediction.answers[0])))
    if prediction.measured is None:
        boxes.append(("measured", "not yet"))
    else:
        boxes.append((prediction.how + _on(prediction), prediction.shown(prediction.measured)))
    state, verdict = prediction.state(answer), prediction.verdict(answer)
    late = " (given after the measurement)" if prediction.is_late else ""
    if verdict and verdict + late != state:  # else the card says it already
        boxes.append(("your answer", verdict + late))
    cells = "".join(
        f'<div style="min-width:90px"><div style="font-size:12px">{html.escape(name)}</div>'
        f'<div style="font-weight:600">{html.escape(value)}</div></div>'
        for name, value in boxes
    )
    question = f"<div>{html.escape(prediction.question)}</div>" if with_question else ""
    why = "" if prediction.measured is None else prediction.disturbance
    why = f'<div class="d2lite-disturbed">{html.escape(why)}</div>' if why else ""
    row = f'<div style="display:flex;flex-wrap:wrap;gap:2px 28px;line-height:20px">{cells}</div>'
    return card(state, question + row + why)


def _on(prediction: Prediction) -> str:
    return f" ({prediction.on})" if prediction.on else ""


def as_text(value: Any) -> str:
    """Return a short printable text, or "" for what is no text."""
    if not isinstance(value, str):
        return ""
    return printable(value if len(value) <= _MOST_CHARS else value[: _MOST_CHARS - 4] + " ...")


def as_answer(value: Any) -> Answer | None:
    """Return a finite number as a float, a text, or None for all else."""
    if isinstance(value, str):
        return as_text(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
