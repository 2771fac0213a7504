"""Panel: controls wired to a training function, the curves of its runs in one figure, and a table of them.

Training runs in a thread of its own (background.py). A second thread reads its state five times per second and sets
widgets, so that neither the loop nor the kernel waits for the page. Callbacks only start and stop.

Sizes are fixed, so that nothing jumps. Only the table at the end grows with the runs.
"""

import html
import inspect
import threading
import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ipywidgets import widgets

from d2lite.devices import describe, try_gpus
from d2lite.figures import training_curves
from d2lite.figures.alternative_text import alternative_text
from d2lite.figures.figure import picture
from d2lite.figures.speed_up import speed_up_card
from d2lite.figures.svg import figure_svg
from d2lite.figures.table import runs_table
from d2lite.profiling.other_programs import OtherPrograms
from d2lite.profiling.watched_training import ImageGuesses, RecordedStep
from d2lite.training.run_record import Run, legends, save
from d2lite.widgets import controls
from d2lite.widgets.animator import PUSH_EVERY_S
from d2lite.widgets.background import Training
from d2lite.widgets.device_lanes import DeviceLanes
from d2lite.widgets.explain_error import explain_error
from d2lite.widgets.live_figure import close_all
from d2lite.widgets.plotly_widget import PlotlyWidget
from d2lite.widgets.static_picture import StaticPicture
from d2lite.widgets.style import CLASS, growing, row, sheet
from notebook_ranks.shared.checks import require_plain_function

__all__ = ["Panel"]

_OTHERS_EVERY_S = 1.0  # how often the CPU time of other programs is read: it takes milliseconds
_LAYOUT = widgets.Layout


class Panel:
    """Show a training function with a control per parameter, and the buttons Train, Stop, Clear and Save.

    The function runs unchanged without a panel. `runs` is the list of its runs so far (Run); `train`, `stop`, `clear`,
    `save` and `interrupt` are the buttons: code drives a panel with `panel.train.click(); panel.wait()`.

    Stop ends a run at its next minibatch or point. If the function does not see it for two seconds, the panel says so
    and shows a further button, Interrupt, which raises Stopped at the function's next line of Python. One long call (a
    sleep, a wait, C code) is not ended before it returns: then the kernel must be restarted.

    Args:
        function: the training function. Train calls it with the values of the controls by name, and with an Animator as
            `animator` if it has that parameter.
        fixed: {parameter: value} for parameters that are passed without a control.
        **given: what is known of a control: a number is its initial value, a tuple (low, high) gives its bounds, a list
            makes it a selection, and None means that there is no control.

    Raises TypeError if `function` is no plain function or a control cannot be made, ValueError if a number is out of
    range or a list is empty.

    Example:
        >>> from d2lite import Panel
        >>> def train(lr=0.1, num_epochs=3, animator=None):
        ...     for epoch in range(num_epochs):
        ...         animator.add(epoch + 1, lr * epoch)
        >>> panel = Panel(train, lr=0.25)  # in a notebook, a last line `panel` shows it
        >>> panel.train.click()
        >>> run = panel.wait()
        >>> run.status, run.settings, run.accuracies
        ('finished', {'lr': 0.25, 'num_epochs': 3}, [0.0, 0.25, 0.5])
        >>> panel.close()
    """

    def __init__(
        self, function: Callable[..., Any], /, *, fixed: Mapping[str, Any] | None = None, **given: Any
    ) -> None:
        if not callable(function):
            raise TypeError(f"Panel: expected a training function, got {function!r}. Write Panel(train), not train().")
        name = getattr(function, "__name__", "function")
        require_plain_function(name, function, "a training function", "Write it without async and yield.")
        self.function, self.fixed = function, dict(fixed or {})
        self.runs: list[Run] = []
        self.controls = controls.make(function, given, self.fixed)
        self._animated = "animator" in inspect.signature(function).parameters
        self._training: Training | None = None
        self._watcher: threading.Thread | None = None
        self._error: BaseException | None = None
        self._idle = threading.Event()  # an interrupted Thread.join may mark a running thread as ended
        self._idle.set()
        self._closed = False
        self._lock = threading.Lock()
        self.layout = PanelLayout(self.controls)
        self.train, self.stop, self.clear, self.save, self.interrupt = (
            self.layout.train, self.layout.stop, self.layout.clear, self.layout.save, self.layout.interrupt
        )  # fmt: skip
        self.train.on_click(self._on_train)
        self.stop.on_click(self._on_stop)
        self.interrupt.on_click(self._on_interrupt)
        self.clear.on_click(self._on_clear)
        self.save.on_click(self._on_save)
        if "num_gpus" in self.controls:
            self.controls["num_gpus"].observe(self._show_devices, "value")
        self._static_picture = StaticPicture(lambda: _picture(self.runs, self.controls), lambda: repr(self))
        self.layout.show_status("Ready: choose the settings and press Train.", 0.0)
        self._show_devices()

    @property
    def running(self) -> bool:
        """Whether a run is in progress."""
        return not self._idle.is_set()

    def wait(self, timeout: float | None = None) -> Run | None:
        """Wait for the end of training and return the last run; None after `timeout` seconds, or without a run.

        Raises once what the function raised; a run that was stopped or diverged has a status instead. An interrupt of
        the kernel ends the run as `close` does, and is raised as KeyboardInterrupt.
        """
        end = None if timeout is None else time.monotonic() + timeout
        try:
            while not self._idle.wait(0.05):
                if end is not None and time.monotonic() >= end:
                    return None
        except KeyboardInterrupt:
            self._end()
            raise
        finally:
            if self._watcher is not None and self._idle.is_set():
                self._watcher.join()
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self.runs[-1] if self.runs else None

    def save_to(self, path: str | Path | None = None) -> Path:
        """Write the runs as JSON to `path`, by default a new file in the working directory, and return the path."""
        return save(self.runs, path, getattr(self.function, "__name__", ""))

    def close(self) -> None:
        """End the run and take the panel off the page; `runs` stay.

        A run that does not see Stop for two seconds is interrupted. After four seconds `close` returns in any case,
        with a RuntimeWarning if the run goes on.
        """
        has_ended = self._end()
        self._closed = True
        self.layout.close()
        if not has_ended:
            why = "it is inside a call that cannot be interrupted, or it catches every exception"
            warnings.warn(f"close: the run has not ended: {why}. It ends with the kernel.", RuntimeWarning, 2)

    def _end(self) -> bool:
        """Stop the run, interrupt it if it does not see that; return whether it ended within four seconds."""
        if self._training is not None and self.running and self._training.end():
            self._idle.wait(10)  # its last state is shown
        return not self.running

    def _on_train(self, _: object = None) -> None:
        with self._lock:
            if self.running or self._closed:
                return  # the second of two clicks
            self._idle.clear()
            self.layout.show_running(True)
            self._error = None
            arguments = {**self.fixed, **controls.values(self.controls)}
            try:
                self._training = Training(self.function, arguments, _devices(arguments), self._animated)
                self._watcher = threading.Thread(
                    target=self._watch, args=(self._training, list(self.runs)), name="d2lite-panel", daemon=True
                )
                self._training.start()
                self._watcher.start()
            except Exception as error:  # no thread could be started
                if self._training is not None:
                    self._training.stop()
                self._error, self._watcher = error, None
                self.layout.show_messages(problem=explain_error(error))
                self.layout.show_status("Not started.", 0.0)
                self.layout.show_running(False)
                self._idle.set()

    def _on_stop(self, _: object = None) -> None:
        if self._training is not None:
            self._training.stop()

    def _on_interrupt(self, _: object = None) -> None:
        if self._training is not None:
            self._training.interrupt()

    def _on_clear(self, _: object = None) -> None:
        with self._lock:
            if self.running:
                return
            self.runs, self._error = [], None
            self.layout.draw([])
            self._static_picture.update()
            self.layout.show_messages()
            self.layout.show_status("Cleared. Press Train.", 0.0)

    def _on_save(self, _: object = None) -> None:
        if not self.runs:
            self.layout.show_status("Nothing to save yet: press Train first.")
            return
        try:
            self.layout.show_status(f"Saved as {self.save_to()}")
        except Exception as error:  # whatever it is: a click has nobody to raise it to
            why = str(error.strerror or "") if isinstance(error, OSError) else ""
            self.layout.show_status("Not saved; the runs are kept.")
            self.layout.show_messages(
                problem=f"Not saved: {why or explain_error(error)}. The runs are kept. "
                "Free some space or choose another place: panel.save_to('/another/folder/runs.json')"
            )

    def _watch(self, training: Training, before: Sequence[Run]) -> None:
        """Show a run until it has ended, its last state included; whatever fails, Train is enabled at the end."""
        try:
            others, read_at = OtherPrograms(), time.monotonic()
            while not training.ended.wait(PUSH_EVERY_S):
                if time.monotonic() - read_at >= _OTHERS_EVERY_S:
                    training.run.other_programs, read_at = others.cores(), time.monotonic()
                self._try_to_show(training, before)
            training.run.other_programs = others.cores()
            training.join()
            self._error = training.error
            self._try_to_show(training, before)
            self._static_picture.update()
        finally:
            if not self._closed:
                self.layout.show_running(False)
            self._idle.set()

    def _try_to_show(self, training: Training, before: Sequence[Run]) -> None:
        """Show the state of a run, or why it cannot be shown."""
        try:
            self.runs = [*before, *training.runs]
            if not training.ended.is_set():
                training.read_points()
            if not self._closed:
                self._show(training)
        except Exception as error:
            self.layout.show_messages(str(training.lines), f"This cannot be drawn: {explain_error(error)}")
            self.layout.show_status("Ended." if training.ended.is_set() else "Running.")

    def _show(self, training: Training) -> None:
        self._show_devices()
        self.layout.draw(self.runs)
        self.layout.show_recorded(*training.take_recorded())
        problem = explain_error(training.error) if training.error else training.why_running
        self.layout.show_messages(str(training.lines), problem)
        self.layout.show_interrupt(bool(training.why_running))
        self.layout.show_status(*_status_line(training))

    def _show_devices(self, _: object = None) -> None:
        training = self._training
        if training is not None and not training.ended.is_set():
            devices = training.run.devices
        else:
            devices = _devices({**self.fixed, **controls.values(self.controls)})
        if "num_gpus" in self.controls and "CPU core" in devices:
            devices += " (no GPU here)"
        self.layout.show_devices(devices or "devices chosen by the function")

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self._repr_mimebundle_(), raw=True)
        self._static_picture.show()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return {**self.layout.widget._repr_mimebundle_(), "text/plain": repr(self)}

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in controls.values(self.controls).items())
        runs = "".join(f"\n  {run!r}" for run in self.runs) or "\n  no run yet: panel.train.click(); panel.wait()"
        return f"Panel({getattr(self.function, '__name__', self.function)}, {settings}){runs}"


class PanelLayout:
    """The widgets of a panel: `widget` holds all, `train`, `stop`, `clear`, `save` and `interrupt` are its buttons."""

    def __init__(self, inputs: Mapping[str, widgets.Widget]) -> None:
        self._names = frozenset(inputs)  # of the controls
        self.train = _button("Train", "play", "Start a run with these settings", button_style="primary")
        self.stop = _button("Stop", "stop", "End the run after the current step", disabled=True)
        self.clear = _button("Clear", "eraser", "Forget all runs")
        self.save = _button("Save", "save", "Write all runs to a JSON file")
        self.interrupt = _button("Interrupt", "bolt", "End a run that does not see Stop", button_style="warning")
        self.interrupt.layout.width = self.clear.layout.width = "96px"
        self.interrupt.layout.display = "none"
        self.devices, self.status, self.table, self.messages = (widgets.HTML() for _ in range(4))
        self.table.add_class("d2lite-runs")
        self.progress = widgets.FloatProgress(max=1.0, layout=_LAYOUT(width="100%", height="6px", margin="4px 0 0"))
        self.curves = PlotlyWidget(training_curves.curves([]))
        self.losses = PlotlyWidget(training_curves.losses([]))
        self.lanes = DeviceLanes()
        self._drawn: list[Any] | None = None  # what the figures show now: they are made anew only after a change
        self._losses_drawn: list[int] | None = None
        scrolled = _LAYOUT(flex="0 0 auto", overflow="visible")  # else the table's head scrolls away
        self.loss_box, self.card = _figure_box(self.losses, "2 1 230px"), widgets.HTML(layout=_LAYOUT(flex="1 1 180px"))
        parts = [
            sheet(),
            row([*inputs.values(), row([self.train, self.stop, self.clear, self.interrupt, self.save])]),
            self.progress,
            growing(row([self.devices, self.status]), 24, 96),
            row([_figure_box(self.curves, "3 1 380px"), self.loss_box, self.card]),
            self.lanes,
            growing(widgets.VBox([self.table, self.messages], layout=scrolled), 84, 240),
        ]
        self.widget = widgets.VBox(parts, layout=_LAYOUT(width="100%", overflow="hidden"))
        self.widget.add_class(CLASS)
        self.draw([])

    def show_running(self, is_running: bool) -> None:
        """Enable the buttons that make sense now."""
        self.train.disabled = self.clear.disabled = is_running
        self.stop.disabled = not is_running
        if not is_running:
            self.show_interrupt(False)

    def show_interrupt(self, is_shown: bool) -> None:
        """Show the button Interrupt in the place of Clear, which a run cannot use, or Clear."""
        self.interrupt.layout.display, self.clear.layout.display = (None, "none") if is_shown else ("none", None)

    def show_status(self, status: str, fraction: float | None = None) -> None:
        """Show the status, and the progress (0..1) if given."""
        self.status.value = html.escape(status)
        if fraction is not None:
            self.progress.value = fraction

    def show_devices(self, devices: str) -> None:
        """Show which devices train, or would train, before the status."""
        self.devices.value = f"<b>{html.escape(devices)}</b>&ensp;"

    def show_messages(self, printed: str = "", problem: str = "") -> None:
        """Show the last lines that were printed, and a problem in plain words beneath them."""
        last = "\n".join(line[-1000:] for line in printed.splitlines()[-20:])[-4096:]
        parts = [("printed", last), ("problem", problem)]
        self.messages.value = "".join(f'<pre class="{kind}">{html.escape(text)}</pre>' for kind, text in parts if text)

    def draw(self, runs: Sequence[Run]) -> None:
        """Draw the runs: their curves and losses, the speed-up, and the table."""
        now = [
            (name, run.devices, run.dataset, len(run.accuracies))
            + tuple((curve, len(points["y"])) for curve, points in run.curves.items())
            for run, name in zip(runs, legends(runs), strict=True)
        ]
        if now != self._drawn:
            self.curves.show(training_curves.curves(runs))
            self._drawn = now
        num_losses = [len(run.losses) for run in runs]
        if num_losses != self._losses_drawn:
            self.losses.show(training_curves.losses(runs))
            self._losses_drawn = num_losses
        if runs:  # a function that has ended and kept no losses does not need the place
            is_needed = any(num_losses) or any(run.status == "running" for run in runs)
            self.loss_box.layout.display = "block" if is_needed else "none"
        self.card.value = speed_up_card(runs, self._names)
        self.table.value = runs_table(runs)

    def show_recorded(self, recorded: RecordedStep | None, tested: ImageGuesses | None) -> None:
        """Show a recorded step and tested images, if there are new ones: see train_watched."""
        if recorded is not None:
            self.lanes.show_step(recorded)
        if tested is not None:
            self.lanes.show_tests(tested)

    def close(self) -> None:
        """Take all widgets off the page."""
        close_all(self.widget)


def _devices(arguments: Mapping[str, Any]) -> str:
    """The description of the devices that `num_gpus` chooses, or "" without such a number."""
    try:
        return describe(try_gpus(arguments["num_gpus"]))
    except (KeyError, TypeError, ValueError):
        return ""


def _status_line(training: Training) -> tuple[str, float | None]:
    """Return the status line, and the progress from 0 to 1, or None to leave it as it is."""
    run, progress, seconds = training.run, training.progress, f"{training.seconds:.1f} s"
    epochs = run.settings.get("num_epochs")
    epochs = epochs if isinstance(epochs, int) and epochs > 0 else None
    if training.outcome:
        words = [training.outcome.words[:1].upper() + training.outcome.words[1:], seconds]
        if run.accuracies:
            words.append(f"test accuracy {run.accuracy:.1%}")
        if run.seconds:
            words.append(f"{run.seconds_per_epoch:.3g} s/epoch")
        words += ["other programs run"] * bool(run.disturbance)
        return " · ".join(words), 1.0 if run.status == "finished" else None
    if training.stopping:
        doing = (
            "Not stopped yet, see the reason below: press Interrupt"
            if training.why_running
            else "Stopping after this step"
        )
        return f"{doing} · {seconds}", None
    if progress.doing.startswith("waiting"):
        return f"{progress.doing[:1].upper()}{progress.doing[1:]} to end · {seconds}", 0.0
    if progress.doing in ("starting", "run"):
        return f"Starting: data, network, replicas · {seconds}", 0.0
    words = [f"Epoch {progress.epoch + 1}" + (f" of {epochs}" if epochs else "")]
    if progress.doing in ("evaluation", "epoch"):
        words.append("evaluating")
    else:
        words.append(f"step {progress.step + 1} of {progress.steps}" if progress.steps else "training")
    if run.losses:
        words.append(f"loss {run.losses[-1]:.3f}")
    fraction = (progress.step + 1) / progress.steps if progress.steps else 0.0
    if epochs:
        fraction = (progress.epoch + fraction) / epochs
    words += [seconds] + ["other programs run"] * bool(run.disturbance)
    return " · ".join(words), min(1.0, fraction)


def _picture(runs: Sequence[Run], controls: Collection[str]) -> str:
    """Return the curves of the runs as a picture, and their table beneath it (HTML)."""
    figures = [training_curves.curves(runs)] + [training_curves.losses(runs)] * any(run.losses for run in runs)
    pictures = "".join(picture(figure_svg(figure, 560), alternative_text(figure)) for figure in figures)
    return pictures + speed_up_card(runs, controls) + runs_table(runs)


def _button(text: str, icon: str, tooltip: str, **options: Any) -> widgets.Button:
    return widgets.Button(description=text, icon=icon, tooltip=tooltip, layout=_LAYOUT(width="72px"), **options)


def _figure_box(figure: PlotlyWidget, flex: str) -> widgets.Box:
    return widgets.Box([figure], layout=_LAYOUT(flex=flex, min_width="0", display="block"))
