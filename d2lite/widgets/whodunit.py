"""Whodunit: read the flight records of ranks that hang, accuse a rank and a cause, and see who it was."""

import html
import inspect
import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ipywidgets as widgets
from anywidget import AnyWidget

from d2lite._checks import whole_number
from d2lite.figures.palette import RED
from d2lite.widgets.live_figure import close_all
from d2lite.widgets.style import CLASS, control_style, row, sheet
from d2lite.workers.faults import CAUSES, Job, reduce_gradients, simulated_records, train_job
from d2lite.workers.flight_recorder import Collective, FlightRecord
from d2lite.workers.hang_diagnosis import diagnose_hang, first_mismatch

__all__ = ["Whodunit"]

_STATES = {"error": "waits", "died": "ended", "silent": "does not answer", "done": "returned", "running": "running"}
_UNSEEN = {"height": "0", "margin": "0"}
_LAST = 9  # collectives of each rank that are shown
_CSS = f"""<style>
.d2lite .d2lite-records td {{ white-space: normal; }} /* a column for each rank: as wide as a narrow page */
.d2lite .d2lite-wrong-row td {{ border-top: 2px solid {RED}; border-bottom: 2px solid {RED}; font-weight: 600; }}
.d2lite .d2lite-verdict {{ padding: 6px 0 6px 8px; border-left: 4px solid var(--jp-border-color1, #888); }}
</style>"""


class _Keys(AnyWidget):
    """Invisible: leaves the arrow keys to the selects of the panel, instead of to the notebook's cells."""

    _esm = """
    export default { render({ el }) {
        const timer = setInterval(() => {
            const selects = el.closest(".d2lite")?.querySelectorAll("select") ?? [];
            for (const select of selects) select.setAttribute("data-lm-suppress-shortcuts", "true"); // of JupyterLab
            if (selects.length > 1) clearInterval(timer);
        }, 50);
        return () => clearInterval(timer);
    } };"""


class Whodunit:
    """A game: a small job with a fault that is drawn hangs, and you find the guilty rank from the ranks' records.

    The records are simulated. A test of the kit runs each cause on two real ranks as well, and compares the diagnoses.
    In a cell `game.accuse(rank, cause)` and `game.next()` do what the buttons do.

    Args:
        world_size: Number of ranks, from 2 to 4.
        seed: Of the faults that are drawn; None draws different ones each time.
        causes: The causes that may be drawn, from `CAUSES`.

    Raises:
        ValueError: For a different number of ranks, or causes that do not exist.
    """

    def __init__(self, world_size: int = 3, seed: int | None = None, causes: Sequence[str] = tuple(CAUSES)) -> None:
        self.world_size = whole_number("world_size", world_size, 2, 4, "More lanes have no room beside each other.")
        unknown = [cause for cause in causes if cause not in CAUSES]
        if unknown or not causes:
            listed = ", ".join(CAUSES)
            raise ValueError(f"causes: expected some of {listed}, got {list(causes)!r}. Leave it out for all of them.")
        self._draw, self._causes = random.Random(seed), tuple(causes)
        self._lock = threading.RLock()
        self.results: list[tuple[Job, int, str]] = []  # the job, and the rank and the cause that were accused
        ranks = [(f"rank {rank}", rank) for rank in range(self.world_size)]
        reasons = [(f"{cause}: {words}", cause) for cause, words in CAUSES.items() if cause in causes]
        self.rank = widgets.Dropdown(options=ranks, **control_style("guilty", 200, 60))
        self.cause = widgets.Dropdown(options=reasons, **control_style("because", 600, 60))
        self.button = widgets.Button(button_style="primary")
        self.button.on_click(self._on_click)
        self._table, self._verdict = widgets.HTML(), widgets.HTML(layout={"min_height": "48px"})
        self._score = widgets.HTML(layout={"margin": "2px 0 0 12px"})
        self._box = widgets.VBox(
            [
                sheet(),
                widgets.HTML(_CSS, layout=_UNSEEN),
                _Keys(layout=_UNSEEN),
                row([self.rank, self.cause]),  # on top: the table is longer in one case than in another
                row([self.button, self._score]),
                self._verdict,
                self._table,
                widgets.HTML(_job()),
            ]
        )
        self._box.add_class(CLASS)
        self.is_open = False
        self.next()

    @property
    def records(self) -> dict[int, FlightRecord]:
        """The records of the case that is shown: {rank: record}."""
        return self._records

    @property
    def score(self) -> tuple[int, int]:
        """(Cases in which the rank and the cause were right, cases.)"""
        right = sum((job.rank, job.cause) == (rank, cause) for job, rank, cause in self.results)
        return right, len(self.results)

    def next(self) -> None:
        """Draw a fault, run the job with it, and show what the recorders kept."""
        with self._lock:
            cause = self._draw.choice(self._causes)
            self._job = Job.drawn(cause, self.world_size, self._draw)
            self._records = simulated_records(self._job, self.world_size)
            self.is_open = True
        self._show("Read the records: which rank is guilty, of what?")

    def accuse(self, rank: int, cause: str) -> bool:
        """Accuse a rank of a cause; return whether both are right. The case is revealed then.

        Raises:
            ValueError: For a rank or a cause that does not exist, or if this case is revealed already.
        """
        if rank not in range(self.world_size) or isinstance(rank, bool):
            raise ValueError(f"rank: expected a whole number from 0 to {self.world_size - 1}, got {rank!r}.")
        if cause not in self._causes:
            raise ValueError(f"cause: expected one of {', '.join(self._causes)}, got {cause!r}.")
        with self._lock:
            if not self.is_open:
                raise ValueError("this case is revealed already: next() draws the next one.")
            self.is_open = False
            self.results.append((self._job, int(rank), cause))
        self.rank.value, self.cause.value = int(rank), cause
        right = rank == self._job.rank, cause == self._job.cause
        verdict = {
            (True, True): "Right.",
            (True, False): "The rank is right, the cause is a different one.",
            (False, True): "The cause is right, but it was a different rank.",
        }.get(right, "No.")
        truth = f"It was rank {self._job.rank}: {CAUSES[self._job.cause]}."
        mark = " The row with ≠ is the first that does not match." if first_mismatch(self._records) else ""
        self._show(f"{verdict} {truth} The records say: {diagnose_hang(self._records)}{mark}")
        return all(right)

    def close(self) -> None:
        """Take the panel off the page."""
        close_all(self._box)

    def _on_click(self, _: object = None) -> None:
        if self.is_open:
            self.accuse(self.rank.value, self.cause.value)
        else:
            self.next()

    def _show(self, words: str) -> None:
        self.button.description = "Accuse" if self.is_open else "Next case"
        self.button.icon = "gavel" if self.is_open else "forward"
        self.rank.disabled = self.cause.disabled = not self.is_open
        self._table.value = _table(self._records, not self.is_open)
        self._verdict.value = f'<div class="d2lite-verdict" role="status">{html.escape(words)}</div>'
        right, cases = self.score
        self._score.value = f"{right} of {cases} right" if cases else "no case solved yet"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {**self._box._repr_mimebundle_(), "text/plain": repr(self)}

    def __repr__(self) -> str:
        right, cases = self.score
        told = "\n".join(str(record) for record in self._records.values())
        return f"Whodunit: {right} of {cases} right. {'' if self.is_open else 'Revealed. '}The records:\n{told}"


def _table(records: dict[int, FlightRecord], reveal: bool) -> str:
    """Return the records as a table: a column for each rank, a row for each collective, times from the first one on."""
    calls = [call for record in records.values() for call in record.collectives]
    began_s = min((call.at_s for call in calls), default=0.0)
    keys = sorted({(c.group, c.number) for c in calls}, key=lambda key: _began(calls, key))
    heads = "".join(f"<th scope='col'>rank {r}: {_STATES[x.state]}</th>" for r, x in sorted(records.items()))
    wrong, rows = first_mismatch(records), []
    for key in keys[-_LAST:]:
        cells = [_cell(record, key, began_s) for _, record in sorted(records.items())]
        marked = reveal and key == wrong
        kind = ' class="d2lite-wrong-row" title="the first that does not match"' if marked else ""
        name = ("≠ " if marked else "") + f"no. {key[1]}" + (f", group {key[0]}" if key[0] != "0" else "")
        rows.append(f"<tr{kind}><td>{html.escape(name)}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    now = "".join(f"<td>{html.escape(_now(record))}</td>" for _, record in sorted(records.items()))
    head = f"<thead><tr><th scope='col'>collective</th>{heads}</tr></thead>"
    return f"<table class='d2lite-records'>{head}<tbody>{''.join(rows)}<tr><td>now</td>{now}</tr></tbody></table>"


def _job() -> str:
    """Return the code of the job with its line numbers, which opens when it is asked for."""
    lines = []
    for function in (train_job, reduce_gradients):
        source, first = inspect.getsourcelines(function)
        lines += [f"{first + i:4} {line.rstrip()}" for i, line in enumerate(source)]
    text = html.escape(chr(10).join(lines))
    return f"<details><summary>the code that the ranks run, with its lines</summary><pre>{text}</pre></details>"


def _began(calls: Sequence[Collective], key: tuple[str, int]) -> tuple[float, tuple[str, int]]:
    return min(call.at_s for call in calls if (call.group, call.number) == key), key


def _cell(record: FlightRecord, key: tuple[str, int], began_s: float) -> str:
    for call in record.collectives:
        if (call.group, call.number) == key:
            sizes = ", ".join(str(list(size)) for size in call.sizes)
            words = f"{call.name} {sizes} {call.dtype}".strip()
            return html.escape(f"{words}, line {call.line}, {call.at_s - began_s:.2f} s")
    return "?" if record.missing else "–"


def _now(record: FlightRecord) -> str:
    if record.missing:
        return f"no record: {record.missing}"
    if record.state == "running" and record.frames:
        file, line, function = record.frames[-1]
        return f"in {function}, {Path(file).name} line {line}"
    return _STATES[record.state]
