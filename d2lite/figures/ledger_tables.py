"""The ledger as tables and words: how often a learner's predictions were right, how far off, and in which direction.

Everything here is computed from the entries of `read_ledger`. Every text is escaped before it is HTML.
"""

import html
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from d2lite.figures.learner_prediction import Prediction, as_answer, as_text
from notebook_ranks.shared.format import format_number

__all__ = ["bias", "exercises_html", "ledger_html", "predictions_html", "predictions_of", "predictions_summary"]

_FEWEST = 3  # predictions of one kind, before anything is said about a bias
_NO_BIAS = 0.05  # a median this close to what was measured is none
_SUBJECTS = {"speed-up": "the second device"}  # kind -> what is over- or underrated; other kinds name it themselves
_COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def predictions_of(entries: Mapping[str, Mapping[str, Any]]) -> list[Prediction]:
    """Return the predictions of a ledger's section "predictions", in the order of the chapters: "2.10" after "2.9"."""
    return [Prediction.from_entry(key, entries[key]) for key in sorted(entries, key=_order)]


def bias(predictions: Sequence[Prediction]) -> list[str]:
    """Return one sentence for each kind of numbers of which three or more predictions have been measured.

    The median of predicted / measured decides, which one disturbed measurement hardly moves; its numbers are shown.

    Example:
        >>> given = dict(question="?", kind="speed-up", answers=(1.9,), measured=1.5)
        >>> bias([Prediction(key=str(i), **given) for i in range(3)])
        ['You overrate the second device: 1.9 predicted, 1.5 measured, too high in three of three.']
    """
    sentences = []
    for kind in dict.fromkeys(p.kind for p in predictions if p.kind):
        pairs = [p.pair for p in predictions if p.kind == kind]
        counted = [pair for pair in pairs if pair is not None]
        if len(counted) < _FEWEST:
            continue
        counted.sort(key=lambda pair: pair[0] / pair[1])
        ratios = [first / measured for first, measured in counted]
        middle = statistics.median(ratios)
        above, below = sum(ratio > 1 for ratio in ratios), sum(ratio < 1 for ratio in ratios)
        subject = _SUBJECTS.get(kind, kind)
        case = counted[len(counted) // 2 if middle > 1 else (len(counted) - 1) // 2]  # of an even number, the clearer
        predicted, measured = map(format_number, case)
        if middle > 1 + _NO_BIAS or middle < 1 - _NO_BIAS:
            verb, word, n = ("overrate", "high", above) if middle > 1 else ("underrate", "low", below)
            count = f"too {word} in {_number_word(n)} of {_number_word(len(ratios))}"
            sentences.append(f"You {verb} {subject}: {predicted} predicted, {measured} measured, {count}.")
        else:
            sentences.append(f"You judge {subject} without a bias: {predicted} predicted, {measured} measured.")
    return sentences


def predictions_summary(predictions: Sequence[Prediction]) -> str:
    """Return how often the first answers were right, and how far off the numbers were, in words."""
    judged = [p.is_right for p in predictions if p.is_right is not None]
    if not judged:
        return "No prediction has been compared with a measurement yet."
    words = f"{sum(judged)} of {len(judged)} {'prediction was' if len(judged) == 1 else 'predictions were'} right."
    ratios = [p.pair[0] / p.pair[1] for p in predictions if p.pair]
    if ratios:
        offs = [max(ratio, 1 / ratio) - 1 for ratio in ratios]
        if len(offs) < _FEWEST:
            words += f" The numbers were off by {' and '.join(f'{off:.0%}' for off in offs)}."
        else:
            words += f" The numbers were off by {statistics.median(offs):.0%} in the median."
    return words


def predictions_html(predictions: Sequence[Prediction]) -> str:
    """Return the predictions as an HTML table, with how often they were right and the bias above it."""
    if not predictions:
        return "<p>No prediction yet: the chapters ask for them.</p>"
    words = " ".join([predictions_summary(predictions), *bias(predictions)])
    rows = []
    for p in predictions:
        given = " → ".join(p.shown(answer) for answer in p.answers) or "no answer"
        found = "–" if p.measured is None else p.shown(p.measured) + (f" ({p.on})" if p.on else "")
        verdict = p.verdict(p.first) + (" (after the measurement: not counted)" if p.is_late else "")
        rows.append((p.key, p.question, given, found, verdict or "–"))
    return f"<p>{html.escape(words)}</p>" + _table(("no.", "question", "predicted", "measured", "first answer"), rows)


def exercises_html(entries: Mapping[str, Mapping[str, Any]], titles: Mapping[str, str]) -> str:
    """Return the exercises as an HTML table: all of `titles` ({name: title}), and the others that were tried."""
    names = sorted({*titles, *entries}, key=_order)
    solved = sum(entries.get(name, {}).get("solved") is True for name in names)
    rows = []
    for name in names:
        entry = entries.get(name)
        right, total = (as_answer((entry or {}).get(field)) for field in ("right", "total"))
        if entry is None:
            state = "not tried yet"
        elif entry.get("solved") is True:
            state = "solved"
        elif isinstance(right, float) and isinstance(total, float):
            state = f"{right:.0f} of {total:.0f} cases right"
        else:
            state = "tried"
        rows.append((as_text(name), titles.get(name, ""), state))
    return f"<p>{solved} of {len(names)} exercises solved.</p>" + _table(("no.", "exercise", "state"), rows)


def ledger_html(ledger: Mapping[str, Mapping[str, Any]], titles: Mapping[str, str] | None = None) -> str:
    """Return a ledger as HTML: the predictions, then the exercises; `titles` are those of all exercises, by name."""
    parts = [predictions_html(predictions_of(ledger.get("predictions", {})))]
    if titles or ledger.get("exercises"):
        parts.append(exercises_html(ledger.get("exercises", {}), titles or {}))
    return "".join(parts)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    left = ' style="text-align:left;vertical-align:top"'
    top = "".join(f'<th scope="col"{left}>{html.escape(head)}</th>' for head in heads)
    body = "".join(
        f'<tr><th scope="row"{left}>{html.escape(row[0])}</th>'
        + "".join(f"<td{left}>{html.escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _number_word(n: int) -> str:
    return _COUNTS[n] if n < len(_COUNTS) else str(n)


def _order(key: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key in which the numbers of a name are compared as numbers."""
    return tuple((0, int(part), "") if part.isdecimal() and len(part) < 10 else (1, 0, part) for part in key.split("."))
