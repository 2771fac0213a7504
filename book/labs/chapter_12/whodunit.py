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

from d2lite.figures.figure import Figure, picture
from d2lite.figures.svg import figure_svg
from d2lite.widgets.live_figure import close_all
from d2lite.widgets.plotly_widget import PlotlyWidget
from d2lite.widgets.static_picture import StaticPicture
from d2lite.widgets.style import CLASS, card, control_style, row, sheet
from notebook_ranks.flight_recorder import C10D, FlightRecord
from notebook_ranks.hang_diagnosis import diagnose_hang, first_mismatch
from notebook_ranks.shared.checks import whole_number

from ..chapter_07.faults import CAUSES, Job, reduce_gradients, simulated_records, swap_with_neighbour, train_job
from .sequence_diagram import sequence_figure

__all__ = ["Whodunit"]

_UNSEEN = {"height": "0", "margin": "0"}
_QUESTION = "Read the records: which rank is guilty, of what?"
_LAST = 5  # collectives of each rank that are shown: a whole step, with room for their words on a narrow page


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
        self.button = widgets.Button(description="Accuse", icon="gavel", button_style="primary")
        self.button.on_click(self._on_accuse)
        self._verdict, self._now = widgets.HTML(), widgets.HTML()
        self._score = widgets.HTML(layout={"margin": "0 0 8px", "flex": "none"})
        self.next_button = widgets.Button(description="Next case", icon="forward")
        self.next_button.on_click(self._on_next)
        self._records: dict[int, FlightRecord] = {}
        self.is_open = False
        self._deal()
        self.plot = PlotlyWidget(self._lanes())
        self._box = widgets.VBox(
            [
                sheet(),
                _Keys(layout=_UNSEEN),
                self._score,
                self.plot,
                self._now,
                row([self.rank, self.cause]),
                row([self.button, self.next_button]),
                self._verdict,
                widgets.HTML(_job()),
            ]
        )
        self._box.add_class(CLASS)
        self._static_picture = StaticPicture(self._draw_static, lambda: repr(self))
        self._show("not attempted", _QUESTION)

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
        self._deal()
        self._show("not attempted", _QUESTION)

    def _deal(self) -> None:
        with self._lock:
            cause = self._draw.choice(self._causes)
            self._job = Job.drawn(cause, self.world_size, self._draw)
            self._records = simulated_records(self._job, self.world_size)
            self.is_open = True

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
        state, verdict = {
            (True, True): ("right", ""),
            (True, False): ("nearly", "The rank is right, the cause is a different one."),
            (False, True): ("nearly", "The cause is right, but it was a different rank."),
            (False, False): ("wrong", ""),
        }[right]
        truth = f"It was rank {self._job.rank}: {CAUSES[self._job.cause]}."
        mark = " The first collective that does not match is red." if first_mismatch(self._records) else ""
        self._show(state, f"{verdict} {truth} The records say: {diagnose_hang(self._records)}{mark}".strip())
        return all(right)

    def close(self) -> None:
        """Take the panel off the page."""
        close_all(self._box)

    def _on_accuse(self, _: object = None) -> None:
        if self.is_open:  # not the second of two clicks
            self.accuse(self.rank.value, self.cause.value)

    def _on_next(self, _: object = None) -> None:
        if not self.is_open:
            self.next()

    def _lanes(self) -> Figure:
        title = "the last collectives of each rank; + is later than the first rank"
        return sequence_figure(self._records, title, _LAST, marked=not self.is_open, late=True)

    def _show(self, state: str, words: str) -> None:
        self.button.disabled, self.next_button.disabled = not self.is_open, self.is_open
        self.rank.disabled = self.cause.disabled = not self.is_open
        self.plot.show(self._lanes())
        self._now.value = "<br>".join(html.escape(line) for line in _now(self._records))
        self._verdict.value = f'<div role="status">{card(state, html.escape(words))}</div>'
        right, cases = self.score
        self._score.value = f"<b>Whodunit</b>, {right} of {cases} cases right" if cases else "<b>Whodunit</b>"
        self._static_picture.update()

    def _draw_static(self) -> str:
        shown = picture(figure_svg(self.plot.figure), self.plot.alternative_text)
        return f"<p>{self._score.value}</p>{shown}<p>{self._now.value}</p>{self._verdict.value}"

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self._repr_mimebundle_(), raw=True)
        self._static_picture.show()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return {**self._box._repr_mimebundle_(), "text/plain": repr(self)}

    def __repr__(self) -> str:
        right, cases = self.score
        told = "\n".join(str(record) for record in self._records.values())
        return f"Whodunit: {right} of {cases} right. {'' if self.is_open else 'Revealed. '}The records:\n{told}"


def _job() -> str:
    """Return the code of the job with its line numbers, which opens when it is asked for."""
    lines = []
    for function in (train_job, reduce_gradients, swap_with_neighbour):
        source, first = inspect.getsourcelines(function)
        lines += [f"{first + i:4} {line.rstrip()}" for i, line in enumerate(source)]
    text = html.escape(chr(10).join(lines))
    return f"<details><summary>the code that the ranks run, with its lines</summary><pre>{text}</pre></details>"


def _now(records: dict[int, FlightRecord]) -> list[str]:
    """Return where each rank is that is in no collective."""
    places = []
    for rank, record in sorted(records.items()):
        frames = [frame for frame in record.frames if Path(frame[0]).name != C10D]
        if frames and record.waits_in in ("", "send", "recv"):
            file, line, function = frames[-1]
            waits = {"send": "waits in a send, ", "recv": "waits in a receive, "}.get(record.waits_in, "is ")
            places.append(f"rank {rank} {waits}in {function}, {Path(file).name} line {line}")
    return places
