"""The fault lab: choose a fault and a time-out, run it on real ranks, read which rank failed and after how long."""

import html
import threading
import time
import warnings
from typing import Any

import ipywidgets as widgets

from d2lite.run_events import Stopped
from d2lite.widgets.explain_error import exception_name, truncate
from d2lite.widgets.live_figure import close_all
from d2lite.widgets.static_picture import StaticPicture
from d2lite.widgets.style import CLASS, card, scrolling, sheet
from d2lite.workers import Workers, WorkersError
from notebook_ranks.hang_diagnosis import diagnose_hang
from notebook_ranks.shared.format import text_of

from .faults import FAULTS, Job, first_not_finite, train_job

__all__ = ["FaultLab"]

AT_FAULT, AT_STEP = 1, 2  # the rank with the fault, and its step, counted from 0
_MOST_CHARS = 400  # of a first line: the longest of the faults has under 200
_Result = tuple[str, float, float, str]  # fault, timeout_s, seconds, message


class FaultLab:
    """A panel with a fault, a time-out, Run and Stop; `results` are (fault, timeout_s, seconds, message) of each run.

    The ranks are started before the clock is, so that `seconds` is the time from the call to the message. In a cell
    `lab.run.click(); lab.wait()` drives it.
    """

    def __init__(self, world_size: int = 2, timeout_s: int = 5) -> None:
        self.world_size = world_size
        self.results: list[_Result] = []
        self.fault = widgets.Dropdown(options=list(FAULTS), description="fault", layout={"width": "420px"})
        self.timeout_s = widgets.IntSlider(timeout_s, 2, 60, description="time-out, s", layout={"width": "420px"})
        self.run = widgets.Button(description="Run", icon="play", button_style="primary")
        self.stop = widgets.Button(description="Stop", icon="stop", disabled=True)
        self._message = widgets.HTML("Predict first: which process reports it, when, and what will the message say?")
        self._table = widgets.HTML()
        self._static_picture = StaticPicture(
            lambda: f"<p>{self._message.value}</p>{self._table.value}", lambda: repr(self)
        )
        buttons, message = widgets.HBox([self.run, self.stop]), scrolling(self._message, 220)
        self._box = widgets.VBox([sheet(), self.fault, self.timeout_s, buttons, message, self._table])
        self._box.add_class(CLASS)
        self._pool: Workers | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self.run.on_click(self._on_run)
        self.stop.on_click(self._on_stop)

    def wait(self, timeout: float = 90) -> _Result | None:
        """Wait for the end of the run and return its result; raises TimeoutError after `timeout` seconds."""
        if self._thread is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                self._on_stop()
                raise TimeoutError(f"the run did not end within {timeout} s and was stopped.")
        return self.results[-1] if self.results else None

    def close(self) -> None:
        """End the ranks and take the panel off the page."""
        self._on_stop()
        if self._thread is not None:
            self._thread.join(10)
        if self._pool is not None:
            self._pool.close()
        close_all(self._box)

    def _on_run(self, _: object = None) -> None:
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                return  # the second of two clicks
            self.run.disabled, self.stop.disabled = True, False
            self._message.value = card("running", "Starting the ranks ...")
            arguments = self.fault.value, float(self.timeout_s.value)
            self._thread = threading.Thread(target=self._work, args=arguments, name="d2lite-fault-lab", daemon=True)
            self._thread.start()

    def _on_stop(self, _: object = None) -> None:
        if self._pool is not None:
            self._pool.stop()

    def _work(self, fault: str, timeout_s: float) -> None:
        began, message, state = time.perf_counter(), "stopped", "finished"
        try:
            if self._pool is None or self._pool.timeout_s != timeout_s:
                if self._pool is not None:
                    self._pool.close()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # more ranks than cores: nothing is timed against a core here
                    self._pool = Workers(self.world_size, timeout_s)
            self._pool.run(len, "warm up")
            self._message.value = card("running", "A rank has the fault: waiting for a message ...")
            began = time.perf_counter()
            message = _without_error(self._pool, Job(FAULTS[fault], AT_FAULT, AT_STEP))
        except WorkersError as error:
            message = str(error)
        except Stopped:
            state = "stopped"
        except BaseException as error:  # whatever it is, it is shown
            message, state = f"{exception_name(error)}: {text_of(error)}", "failed"
        message = truncate(message)
        seconds = time.perf_counter() - began
        self.results.append((fault, timeout_s, seconds, message))
        words = "" if state == "stopped" else f"<pre>{html.escape(message)}</pre>"
        self._message.value = card(state, f"<b>After {seconds:.2f} s</b>{words}")
        self._table.value = self._rows()
        self._static_picture.update()
        self.run.disabled, self.stop.disabled = False, True

    def _rows(self) -> str:
        heads = "".join(f"<th>{head}</th>" for head in ("fault", "time-out", "message after", "first line"))
        rows = "".join(
            f"<tr><td>{html.escape(fault.split(':')[0])}</td><td>{timeout_s:g} s</td>"
            f"<td>{seconds:.2f} s</td><td class='d2lite-words'>{html.escape(first_line[:_MOST_CHARS])}</td></tr>"
            for fault, timeout_s, seconds, message in self.results
            for first_line in message.split("\n", 1)[:1]
        )
        return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self._repr_mimebundle_(), raw=True)
        self._static_picture.show()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return {**self._box._repr_mimebundle_(), "text/plain": repr(self)}

    def __repr__(self) -> str:
        rows = [f"  {fault}: message after {seconds:.2f} s" for fault, _, seconds, _ in self.results]
        return "\n".join(["FaultLab", *(rows or ["  no run yet: lab.run.click(); lab.wait()"])])


def _without_error(pool: Workers, job: Job) -> str:
    """Run a job on the ranks; say what its results and the flight records show, if no rank fails."""
    found = first_not_finite(pool.run(train_job, job))
    if found is None:
        return diagnose_hang(pool.flight_records()).words
    rank, step = found
    return (
        f"rank {rank} contributed a gradient that is not finite to step {step + 1}; after the all-reduce every rank "
        "had it. No rank failed: check gradients before you send them."
    )
