"""The pattern of the panels that compute for some seconds: controls, Run, Stop, progress, a figure, a result in words.

What is computed runs in a thread (background.py); a second thread shows its state. Callbacks only start and stop.
"""

import html
import threading
import time
from collections.abc import Mapping, Sequence

import ipywidgets as widgets

from d2lite.figures.figure import Figure
from d2lite.widgets.animator import PUSH_EVERY_S
from d2lite.widgets.background import Training
from d2lite.widgets.explain_error import explain_error
from d2lite.widgets.explorer import Explorer
from d2lite.widgets.live_figure import close_all
from d2lite.widgets.plotly_widget import PlotlyWidget
from d2lite.widgets.style import CLASS, card, growing, row, scrolling, sheet

from .comparison import Trial

__all__ = ["Experiment"]


class Experiment(Explorer):
    """Trials of some arms, computed in the background; code drives it by `panel.run.click(); panel.wait()`.

    A subclass makes its controls, calls `_build`, and has `_prepare` (read the controls, return the number of trials),
    `_compute` (train, and call `_add` with each Trial), `_draw` (the figure) and `_result` (the result as HTML).
    `trials` are those so far. Stop keeps them.
    """

    trials: list[Trial]

    def _build(self, rows: Sequence[widgets.Widget], controls: Mapping[str, widgets.Widget], words: int) -> None:
        """Make the view: the rows of controls, the buttons, the figure, and `words` pixels for the result."""
        self.controls, self.trials = dict(controls), []
        self.run = widgets.Button(description="Run", icon="play", button_style="primary")
        self.stop = widgets.Button(description="Stop", icon="stop", disabled=True)
        self.progress = widgets.FloatProgress(max=1.0, layout={"width": "100%", "height": "10px", "margin": "4px 0"})
        self.status, self.summary = widgets.HTML("Choose the settings and press Run."), widgets.HTML()
        self._training: Training | None = None
        self._watcher: threading.Thread | None = None
        self._num_trials, self._shown, self._is_closed = 0, -1, False
        self._start_lock, self._idle = threading.Lock(), threading.Event()
        self._idle.set()
        self.plot = PlotlyWidget(self._draw())
        self.plot.layout.height = f"{self.figure.layout.height + 4}px"
        parts = [sheet(), *rows, row([self.run, self.stop]), self.progress, growing(self.status, 40, 90), self.plot]
        self.view = widgets.VBox(
            [*parts, scrolling(self.summary, words)], layout=widgets.Layout(width="100%", overflow="hidden")
        )
        self.view.add_class(CLASS)
        self.run.on_click(self._on_run)
        self.stop.on_click(self._on_stop)
        self._follow(self.controls.values())

    def _prepare(self) -> int:
        raise NotImplementedError

    def _compute(self) -> None:
        raise NotImplementedError

    def _draw(self) -> Figure:
        raise NotImplementedError

    def _result(self) -> str:
        raise NotImplementedError

    @property
    def running(self) -> bool:
        """Whether trials are being computed."""
        return not self._idle.is_set()

    def wait(self, timeout: float = 300) -> list[Trial]:
        """Wait for the end and return the trials; after Stop, return the trials that had ended.

        Raises what the training raised; TimeoutError after `timeout` seconds, when it is stopped as well. An interrupt
        of the kernel stops the training, too.
        """
        end = time.monotonic() + timeout
        try:
            while not self._idle.wait(0.05):
                if time.monotonic() >= end:
                    raise TimeoutError(f"the trials did not end within {timeout:g} s and were stopped.")
        except BaseException:
            self._on_stop()
            raise
        if self._watcher is not None:
            self._watcher.join(10)
        if self._training is not None and self._training.error is not None:
            raise self._training.error
        return self.trials

    def close(self) -> None:
        """Stop what runs and take the panel off the page; `trials` stay."""
        if self._training is not None and self.running:
            self._training.end()
            self._idle.wait(10)
        self._is_closed = True
        close_all(self.view)

    def _add(self, trial: Trial) -> None:
        self.trials.append(trial)

    def _on_run(self, _: object = None) -> None:
        with self._start_lock:
            if self.running or self._is_closed:
                return  # the second of two clicks
            self._idle.clear()
            self.run.disabled, self.stop.disabled = True, False
            try:
                self.trials, self._shown = [], -1
                self._num_trials = self._prepare()
                self._training = Training(self._compute, {}, animated=False)
                self._watcher = threading.Thread(target=self._watch, name="d2lite-experiment", daemon=True)
                self._training.start()
                self._watcher.start()
            except Exception as error:  # settings that do not fit, or no thread could be started
                self._training = None
                self.status.value = card("failed", html.escape(f"Not started: {error}"))
                self.run.disabled, self.stop.disabled = False, True
                self._idle.set()

    def _on_stop(self, _: object = None) -> None:
        if self._training is not None:
            self._training.stop()

    def _watch(self) -> None:
        training = self._training
        assert training is not None
        try:
            while not training.ended.wait(PUSH_EVERY_S):
                self._show(training)
            training.join(10)
            self._show(training)
        finally:
            if not self._is_closed:
                self.run.disabled, self.stop.disabled = False, True
            self._idle.set()

    def _show(self, training: Training) -> None:
        if self._is_closed:
            return
        done = len(self.trials)
        if done != self._shown or training.outcome is not None:  # before the status: what is finished is shown
            self._shown = done
            self._update()
        counted = f"{done} of {self._num_trials} trainings · {training.seconds:.1f} s"
        state, words = "running", "Stopping after this step · " if training.stopping else ""
        if training.outcome is not None:
            state = training.outcome.status.split(" ")[0].rstrip(":")  # "diverged at step 3"
            words = "" if training.outcome.words == state else f"{training.outcome.words} · "
        problem = f" · {explain_error(training.error).splitlines()[0]}" if training.error else ""
        self.status.value = card(state, html.escape(f"{words}{counted}{problem}"))
        self.progress.value = done / max(1, self._num_trials)

    def _redraw(self) -> None:
        self.plot.show(self._draw())
        self.summary.value = self._result()
