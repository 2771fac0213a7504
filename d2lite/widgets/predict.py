"""Predict: a question that is answered before a measurement, and shown next to it afterwards.

An answer is locked when it is given, and goes into the ledger: it is still there after the page was loaded again or the
cell was run again. Outside of a notebook, and without ipywidgets, the same is text.
"""

import html
import importlib.util
import math
import re
import reprlib
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from d2lite.devices import describe
from d2lite.figures.learner_prediction import Answer, Prediction, prediction_html
from d2lite.learner_ledger import change, read_ledger
from d2lite.widgets.static_picture import StaticPicture
from notebook_ranks.shared.checks import non_negative_number
from notebook_ranks.shared.notebook import notebook_shell

__all__ = ["Predict", "typed_number"]

_SAME = {"×": ("x", "times", "fold", "*"), "%": ("percent",), "s": ("sec", "second"), "ms": ("millisecond",)}
_NUMBER = re.compile(r"(?P<number>[+-]?(?:[0-9][0-9.,]*|[.,][0-9]+)(?:e[+-]?[0-9]{1,3})?)(?P<unit>.*)", re.I | re.S)
_MOST_CHARS = 200  # of one choice
_TWO_WAYS = re.compile(r"[+-]?[1-9][0-9]{0,2},[0-9]{3}")  # 12,000: thousands, or a decimal comma


class Predict:
    """Ask a question; the learner's answer is locked, and `reveal` shows it next to what was measured.

    It never waits: without an answer `reveal` shows "no answer" and the measured value. "Predict again" opens the
    question once more; the first answer stays in the ledger and is the one that counts. An answer after `reveal` does
    not count.

    Args:
        question: What is asked, as plain text.
        choices: Two or more possible answers, as texts; without them the answer is a number.
        unit: Of a number, for example "s" or "×".
        key: The name of the question in the ledger, for example "2.3"; by default the question itself.
        kind: What kind of number it is, for example "speed-up": predictions of one kind are looked at together.
        within: A number is right if it differs from the measured one by at most this fraction of it.

    Example:
        >>> from d2lite import Predict
        >>> predict = Predict("How many times as fast are two?", unit="×", key="example", kind="speed-up")
        >>> predict.commit("1,9")  # in a notebook: typed into the widget
        >>> predict.reveal(1.6, on="2 replicas on 2 CPU cores")
        How many times as fast are two? predicted 1.9×, measured 1.6× (2 replicas on 2 CPU cores): 19% too high.
    """

    def __init__(
        self,
        question: str,
        choices: Sequence[str] | None = None,
        *,
        unit: str = "",
        key: str = "",
        kind: str = "",
        within: float = 0.1,
    ) -> None:
        for name, value in (("question", question), ("unit", unit), ("key", key), ("kind", kind)):
            if not isinstance(value, str):
                raise TypeError(f"{name}: expected a text, got {reprlib.repr(value)} ({type(value).__name__}).")
        self.choices = None if choices is None else _choices(choices)
        if self.choices is not None and (unit or kind):
            raise TypeError("choices: expected them without a unit and a kind, which only numbers have. Leave one out.")
        self.unit, self.key = unit, key or question
        self._lock = threading.RLock()
        self._is_revealed = False
        self._view: Any = None  # the widgets, once they are shown
        asked = {"question": question, "unit": unit, "kind": kind, "within": non_negative_number("within", within)}
        self._news: dict[str, Any] = asked  # what is set in the ledger's entry
        self._unwritten: list[Answer] = []  # answers that are not in the ledger yet
        self._is_late = False  # whether the first of them came after `reveal`
        self._entry = _kept(self.key)  # as it was when the ledger was read or written last
        self._is_open = not self._answers_in(self._entry)
        self._static_picture = StaticPicture(self._draw_static, lambda: repr(self))

    @property
    def prediction(self) -> Prediction:
        """The question, the answers and what was measured, as they are in the ledger."""
        return Prediction.from_entry(self.key, {**self._entry, **self._changed(self._entry)})

    @property
    def answer(self) -> Answer | None:
        """The last answer: one of the choices, or a number; None without one."""
        answers = self.prediction.answers
        return answers[-1] if answers else None

    @property
    def is_open(self) -> bool:
        """Whether an answer can be given."""
        return self._is_open

    def commit(self, answer: str | float) -> None:
        """Lock an answer, a choice or a number with or without its unit; ValueError for another or a second one."""
        checked = self._checked(answer)
        with self._lock:
            if not self._is_open:
                raise ValueError(f"answer: {self.key} has one, {self.answer!r}. Call again() to predict once more.")
            self._is_open = False
            if not self._unwritten:
                self._is_late = self._is_revealed
            self._unwritten.append(checked)
            self._write()

    def again(self) -> None:
        """Open the question once more. The answers that were given stay in the ledger."""
        self._is_open = True
        self._show()

    def reveal(
        self,
        value: Any,
        on: str | Iterable[torch.device | str] = "",
        how: str = "measured",
        quiet: bool = False,
        disturbance: str = "",
    ) -> None:
        """Show the answer next to the value that was found, here and in the widget, and write both into the ledger.

        Args:
            value: A text as one of the choices, or a number in the question's unit. A lesson that was changed may find
                a text that is none of the choices, or a number that is not finite: these are shown, too.
            on: The label of the devices, as a Run has it, or a list of devices.
            how: How the value was found: "measured", "counted", or "computed" by a model.
            quiet: In a notebook, show it in the widget alone, which is just above.
            disturbance: What disturbed the measurement, as the `disturbance` of a Run or of OtherPrograms says it; ""
                for nothing. A disturbed measurement is shown with these words, and the answer does not count.
        """
        found = self._found(value)
        label = on if isinstance(on, str) else describe(on)
        with self._lock:
            self._is_revealed = True
            self._news |= {"measured": found, "on": label, "how": how, "disturbance": disturbance}
            self._write()
        text = str(self.prediction)
        if notebook_shell() is None:
            print(text)
        elif not quiet:
            from IPython.display import display

            display({"text/html": prediction_html(self.prediction), "text/plain": text}, raw=True)

    def _checked(self, answer: str | float) -> Answer:
        if self.choices is None:
            answer = typed_number(answer, self.unit) if isinstance(answer, str) else self._found(answer, "answer")
            if isinstance(answer, float):
                return answer
            raise ValueError(f"answer: expected a finite number, got {answer}.")
        if not (isinstance(answer, str) and answer in self.choices):
            listed = ", ".join(repr(choice) for choice in self.choices)
            raise ValueError(f"answer: expected one of {listed}, got {reprlib.repr(answer)}.")
        return answer

    def _found(self, value: Any, name: str = "value") -> Answer:
        """Return a text for choices, else a float, or the text of one that is not finite."""
        if self.choices is not None:
            if not isinstance(value, str):
                raise TypeError(f"{name}: expected a text, as the choices are, got {reprlib.repr(value)}.")
            return value
        try:
            if isinstance(value, (str, bytes)):
                raise TypeError
            number = float(value)
        except (TypeError, ValueError, RuntimeError, OverflowError):  # RuntimeError: a tensor with several numbers
            raise TypeError(f"{name}: expected a number, got {reprlib.repr(value)} ({type(value).__name__}).") from None
        return number if math.isfinite(number) else str(number)

    def _is_possible(self, answer: Answer) -> bool:
        return isinstance(answer, float) if self.choices is None else answer in self.choices

    def _answers_in(self, entry: dict[str, Any]) -> list[Answer]:
        """The answers in an entry of the ledger; those to an earlier edition of the question are left out."""
        return [answer for answer in Prediction.from_entry(self.key, entry).answers if self._is_possible(answer)]

    def _changed(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Return what is set in an entry of the ledger: a different notebook may have answered in the meantime."""
        earlier = max(self._answers_in(entry), self._answers_in(self._entry), key=len)  # the file may be a new one
        # without an answer, what an earlier run has measured is not shown
        anew = {} if earlier else {"measured": None, "is_late": self._is_late}
        return {**anew, **self._news, "answers": [*earlier, *self._unwritten]}

    def _write(self) -> None:
        written = change("predictions", self.key, self._changed)
        if written is not None:
            self._entry, self._unwritten = written, []
        self._show()

    def _show(self) -> None:
        if self._view is not None:
            self._view.show(self.prediction, self._is_open)
        self._static_picture.update()

    def _draw_static(self) -> str:
        """The question, or the answer next to what was measured, for a page without a kernel (HTML)."""
        if not self._is_open:
            return prediction_html(self.prediction)
        choices = "".join(f"<li>{html.escape(choice)}</li>" for choice in self.choices or ())
        return f"<p><b>{html.escape(self.prediction.question)}</b></p><ul>{choices}</ul>"

    def _ipython_display_(self) -> None:
        bundle = self._repr_mimebundle_()
        if notebook_shell() is None:
            print(bundle["text/plain"])
            return
        from IPython.display import display

        display(bundle, raw=True)
        if self._view is not None:
            self._static_picture.show()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        if importlib.util.find_spec("ipywidgets") is None:
            return {"text/plain": repr(self)}
        if self._view is None:
            from d2lite.widgets.predict_layout import PredictLayout

            self._view = PredictLayout(self.prediction, self.choices, self.commit, self.again, self._is_open)
        return {**self._view.widget._repr_mimebundle_(), "text/plain": repr(self)}

    def __repr__(self) -> str:
        if not self._is_open:
            return str(self.prediction)
        asked = ", ".join(map(repr, self.choices or ())) or f"a number{' in ' + self.unit if self.unit else ''}"
        return f"{self.prediction.question} Answer with commit(...): {asked}."


def typed_number(text: str, unit: str = "") -> float:
    """Return the number that a learner has typed: "1.9", "1,9", "1.9 s" and "12,000,000" are numbers.

    Raises ValueError if it is no number, has another unit, or can be read in two ways ("12,000" is 12 or 12000).
    """
    example = f"1.9 or 1.9 {unit}" if unit else "1.9"
    expected = f"expected a number, for example {example}"
    cleaned = text.strip().lstrip("~≈ ").replace("\u2212", "-").replace("_", "")
    cleaned = re.sub(r"(?<=[0-9])[ \u00a0\u2009\u202f](?=[0-9]{3}(?![0-9]))", "", cleaned)
    match = _NUMBER.fullmatch(cleaned) if len(cleaned) <= 100 else None
    if match is None:
        raise ValueError(f"{expected}, got {reprlib.repr(text) if text.strip() else 'nothing'}.")
    got = match["unit"].strip().casefold().rstrip(".")
    if got and not _is_unit(got, unit):
        what = f"a number in {unit}" if unit else "a number without a unit"
        raise ValueError(f"expected {what}, got {reprlib.repr(text)}.")
    digits, e, power = match["number"].casefold().partition("e")
    if _TWO_WAYS.fullmatch(digits):
        ways = f"write {digits.replace(',', '')} or {digits.replace(',', '.')}"
        raise ValueError(f"{reprlib.repr(text)} can be read in two ways: {ways}.")
    number = _python_digits(digits)
    if number is None:
        raise ValueError(f"{expected}, got {reprlib.repr(text)}.")
    value = float(number + e + power)
    if not math.isfinite(value):
        raise ValueError(f"{expected}, got one that is too large.")
    return value


def _python_digits(digits: str) -> str | None:
    """Return a number with commas and points as Python writes it, or None if it is none."""
    for thousands, point in ((",", "."), (".", ",")):  # 1,234,567.8 and 1.234.567,8
        t, p = re.escape(thousands), re.escape(point)
        if re.fullmatch(rf"[+-]?[0-9]*{p}?[0-9]*|[+-]?[1-9][0-9]{{0,2}}({t}[0-9]{{3}})+({p}[0-9]*)?", digits):
            return digits.replace(thousands, "").replace(point, ".")
    return None


def _is_unit(got: str, unit: str) -> bool:
    names = {name.casefold().rstrip("s") or "s" for name in (unit, *_SAME.get(unit, ()))}
    return bool(unit) and (got.rstrip("s") or "s") in names


def _choices(choices: Sequence[str]) -> tuple[str, ...]:
    if isinstance(choices, (str, bytes)) or not isinstance(choices, Sequence):
        raise TypeError(f"choices: expected a list of texts, got {reprlib.repr(choices)}.")
    if not all(isinstance(choice, str) and choice.strip() for choice in choices):
        raise TypeError(f"choices: expected texts, got {reprlib.repr(list(choices))}.")
    if any(len(choice) > _MOST_CHARS for choice in choices):
        raise ValueError(f"choices: expected texts of at most {_MOST_CHARS} characters, got a longer one.")
    if len(set(choices)) < 2 or len(set(choices)) != len(choices):
        raise ValueError(f"choices: expected two or more different ones, got {reprlib.repr(list(choices))}.")
    return tuple(choices)


def _kept(key: str) -> dict[str, Any]:
    """Return the entry of the ledger, or {} without one. A damaged ledger is set aside when an answer is written."""
    try:
        entry = read_ledger()["predictions"].get(key, {})
    except (ValueError, OSError):
        return {}
    kept = ("answers", "measured", "how", "on", "is_late", "disturbance")
    return {name: entry[name] for name in kept if name in entry}
