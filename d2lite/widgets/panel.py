"""Panel: controls wired to a training function, its runs over each other, and a table of them.

Training goes on in a thread of its own (background.py); a second thread looks at it five times a second and sets
widgets (view.py), so that neither the loop nor the kernel waits for the page. Callbacks only start and stop.
"""

import inspect
import threading
import time

from d2lite.devices import describe, try_gpus
from d2lite.training.run import save
from d2lite.widgets import controls
from d2lite.widgets.animator import PUSH_EVERY_S
from d2lite.widgets.background import Training, explain
from d2lite.widgets.panel_view import View

__all__ = ["Panel"]


class Panel:
    """A panel for the training function `function`: a control a parameter, Train, Stop, Clear and Save.

    `function` is called with the controls' values by name, and with an `animator` if it has that parameter. Keywords
    set controls: a number its initial value, a tuple (low, high) its bounds, a list a selection; `fixed` holds values
    passed without a control. `runs` are the records; in a cell, `panel.train.click(); panel.wait()` drives it.
    """

    def __init__(self, function, /, *, fixed=None, **given):
        if not callable(function):
            raise TypeError(f"Panel: expected a training function, got {function!r}. Write Panel(train), not train().")
        self.function, self.fixed, self.runs = function, dict(fixed or {}), []
        self.controls = controls.make(function, given, self.fixed)
        self._animated = "animator" in inspect.signature(function).parameters
        self._training = self._watcher = self._error = None
        self._idle = threading.Event()  # an interrupted Thread.join may take a running thread for a dead one
        self._idle.set()
        self._dataset = ""
        self._lock = threading.Lock()
        self._view = View(list(self.controls.values()))
        self.train, self.stop, self.clear, self.save = (
            self._view.train, self._view.stop, self._view.clear, self._view.save
        )  # fmt: skip
        self.train.on_click(self._on_train)
        self.stop.on_click(self._on_stop)
        self.clear.on_click(self._on_clear)
        self.save.on_click(self._on_save)
        if "num_gpus" in self.controls:
            self.controls["num_gpus"].observe(self._show_labels, "value")
        self._view.say("Ready: choose the settings and press Train.", 0.0)
        self._show_labels()

    @property
    def running(self):
        """Whether a run is on."""
        return not self._idle.is_set()

    def wait(self, timeout=None):
        """Wait for the end of the run and return the last record; None after `timeout` seconds, or without a run.

        Raises, once, what the function raised; a run that was stopped or diverged is no error, its status says so.
        An interrupt of the kernel stops the run.
        """
        end = None if timeout is None else time.monotonic() + timeout
        try:
            while not self._idle.wait(0.05):
                if end is not None and time.monotonic() >= end:
                    return None
        except KeyboardInterrupt:
            self._on_stop()
            self._idle.wait(10)
            raise
        finally:
            if self._watcher is not None and self._idle.is_set():
                self._watcher.join()
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self.runs[-1] if self.runs else None

    def save_to(self, path=None):
        """Write the runs as JSON to `path`, by default a new file in the working directory, and return the path."""
        return save(self.runs, path, getattr(self.function, "__name__", ""))

    def close(self):
        """Stop the run, wait for its end and take the panel off the page; `runs` stay."""
        self._on_stop()
        if self._watcher is not None:
            self._watcher.join()
        self._view.close()

    def _on_train(self, _=None):
        with self._lock:
            if self.running:
                return  # the second of two clicks
            self._idle.clear()
            self._view.running(True)
            self._error = None
            arguments = {**self.fixed, **controls.values(self.controls)}
            self._training = Training(self.function, arguments, _devices(arguments), self._animated)
            self._watcher = threading.Thread(
                target=self._watch, args=(self._training, list(self.runs)), name="d2lite-panel", daemon=True
            )
            self._training.start()
            self._watcher.start()

    def _on_stop(self, _=None):
        if self._training is not None:
            self._training.stop()

    def _on_clear(self, _=None):
        with self._lock:
            if self.running:
                return
            self.runs, self._error = [], None
            self._view.draw([])
            self._view.show_messages()
            self._view.say("Cleared. Press Train.", 0.0)

    def _on_save(self, _=None):
        if not self.runs:
            self._view.say("Nothing to save yet: press Train first.")
            return
        try:
            self._view.say(f"Saved as {self.save_to()}")
        except OSError as error:
            self._view.say("Not saved; the runs are kept.")
            self._view.show_messages(
                problem=f"Not saved: {error.strerror or error}. The runs are kept. "
                "Free some space or choose another place: panel.save_to('/another/folder/runs.json')"
            )

    def _watch(self, training, before):
        """Show a run until it has ended; its last state always."""
        try:
            while not training.ended.wait(PUSH_EVERY_S):
                training.read_points()
                self._show(training, before)
        finally:
            training.ended.wait()
            training.join()
            self._error = training.error
            try:
                self._show(training, before)
                self._view.running(False)
            finally:
                self._idle.set()

    def _show(self, training, before):
        self.runs = before + training.runs
        self._dataset = training.run.dataset or self._dataset
        self._show_labels()
        self._view.draw(self.runs)
        self._view.show_messages(str(training.lines), explain(training.error) if training.error else "")
        self._view.say(*_where(training))

    def _show_labels(self, _=None):
        training = self._training
        if training is not None and not training.ended.is_set():
            devices = training.run.devices
        else:
            devices = _devices({**self.fixed, **controls.values(self.controls)})
        self._view.label(devices or "chosen by the function", self._dataset or "named by the run")

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {**self._view.widget._repr_mimebundle_(), "text/plain": repr(self)}

    def __repr__(self):
        settings = ", ".join(f"{name}={value!r}" for name, value in controls.values(self.controls).items())
        runs = "".join(f"\n  {run!r}" for run in self.runs) or "\n  no run yet: panel.train.click(); panel.wait()"
        return f"Panel({getattr(self.function, '__name__', self.function)}, {settings}){runs}"


def _devices(arguments):
    """The label of the devices that `num_gpus` means, "" where there is no such number."""
    try:
        return describe(try_gpus(arguments["num_gpus"]))
    except (KeyError, TypeError, ValueError):
        return ""


def _where(training):
    """Return (status line, progress from 0 to 1 or None) of a training."""
    run, seconds = training.run, f"{training.seconds:.1f} s"
    epochs = run.settings.get("num_epochs")
    known = isinstance(epochs, int) and epochs > 0
    if training.ended.is_set():
        words = [training.outcome[:1].upper() + training.outcome[1:], seconds]
        if run.accuracies:
            words.append(f"test accuracy {run.accuracy:.1%}")
        if run.seconds:
            words.append(f"{run.seconds_per_epoch:.3g} s/epoch")
        return " · ".join(words), 1.0 if run.status == "finished" else None
    if training.stopping:
        return f"Stopping after this step · {seconds}", None
    if training.doing in ("starting", "run"):
        return f"Starting: data, network, replicas · {seconds}", 0.0
    words = [f"Epoch {training.epoch + 1}" + (f" of {epochs}" if known else "")]
    words.append("evaluating" if training.doing in ("evaluation", "epoch") else _step(training))
    if run.losses:
        words.append(f"loss {run.losses[-1]:.3f}")
    fraction = (training.step + 1) / training.steps if training.steps else 0.0
    if known:
        fraction = (training.epoch + fraction) / epochs
    return " · ".join([*words, seconds]), min(1.0, fraction)


def _step(training):
    return f"step {training.step + 1} of {training.steps}" if training.steps else "training"
