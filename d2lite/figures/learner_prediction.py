"""A prediction: what was asked, answered and measured, and how far apart both are, as text and as HTML.

A prediction comes from a ledger, a file that anyone may have edited. Unexpected values are left out, and every text
is escaped before it becomes HTML.
"""

import html
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from d2lite._format import format_number, printable
from d2lite.figures.palette import GREY, PALETTE

__all__ = ["Answer", "Prediction", "as_answer", "as_text", "prediction_html"]

Answer = float | str
_MOST_CHARS = 300


@dataclass(frozen=True)
class Prediction:
    """One prediction: the answers in the order in which they were given, and what was measured.

    `measured` is None before the measurement. `how` says how it was found: "measured", "counted" or "computed".
    `on` is the label of the devices. An answer is right if it is the measured one or, for a number, if it differs from
    it by the fraction `within` at most. `is_late` if the first answer came after the measurement: it does not count.
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
        )

    @property
    def first(self) -> Answer | None:
        """The first answer, which is the one that counts; None without one."""
        return self.answers[0] if self.answers else None

    @property
    def is_right(self) -> bool | None:
        """Whether the first answer was right; None if it does not count, or if there is nothing to compare."""
        return None if self.is_late else self.fits(self.first)

    @property
    def pair(self) -> tuple[float, float] | None:
        """The first answer and the measured number; None unless the answer counts and both are above 0."""
        first, measured = self.first, self.measured
        if self.is_late or not isinstance(first, float) or not isinstance(measured, float):
            return None
        return (first, measured) if first > 0 and measured > 0 else None

    def fits(self, answer: Answer | None) -> bool | None:
        """Return whether an answer is right, or None if there is nothing to compare."""
        if answer is None or self.measured is None or type(answer) is not type(self.measured):
            return None
        if isinstance(answer, float) and isinstance(self.measured, float):
            return abs(answer - self.measured) <= self.within * abs(self.measured) * (1 + 1e-9)
        return answer == self.measured

    def shown(self, answer: Answer) -> str:
        """Return an answer or the measured value as text, with its unit."""
        if isinstance(answer, str):
            return answer
        return format_number(answer) + ("" if self.unit in ("", "×", "%") else " ") + self.unit

    def verdict(self, answer: Answer | None) -> str:
        """Return how far an answer is from what was measured, in words; "" if there is nothing to compare."""
        fits = self.fits(answer)
        if fits is None:
            return ""
        if not (isinstance(answer, float) and isinstance(self.measured, float)):
            return "right" if fits else "wrong"
        if fits:
            return "right" if answer == self.measured else f"right, within {self.within:.0%}"
        if answer <= 0 or self.measured <= 0:
            return f"off by {self.shown(abs(answer - self.measured))}"
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
        return f"{self.question} {', '.join(words)}{_on(self)}{': ' + verdict if verdict else ''}."


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
    fits, verdict = prediction.fits(answer), prediction.verdict(answer)
    if verdict:
        boxes.append(("your answer", verdict + (" (given after the measurement)" if prediction.is_late else "")))
    colour = GREY if fits is None else PALETTE[2] if fits else PALETTE[1]
    cells = "".join(
        f'<div style="min-width:90px"><div style="font-size:12px">{html.escape(name)}</div>'
        f'<div style="font-weight:600">{html.escape(value)}</div></div>'
        for name, value in boxes
    )
    question = f"<div>{html.escape(prediction.question)}</div>" if with_question else ""
    return (
        f'<div style="border-left:4px solid {colour};padding:2px 0 2px 10px;line-height:1.4;overflow-wrap:anywhere">'
        f"{question}"
        f'<div style="display:flex;flex-wrap:wrap;gap:2px 28px">{cells}</div></div>'
    )


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
