"""A training function in a thread of its own: start it, follow it, stop it. This file uses no widget.

The function emits events (d2lite/run_events.py). `Training` keeps at all times what they report in a Run, so that a run
that is stopped, diverges or fails is kept as well. Stop takes effect where the function emits an event; `interrupt`
ends a function of pure Python that emits none.
"""

import atexit
import inspect
import math
import reprlib
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from d2lite.figures.training_curves import is_accuracy
from d2lite.run_events import Diverged, Stopped, listening
from d2lite.training.run_record import Run
from d2lite.widgets.animator import Animator
from d2lite.widgets.async_exception import Interruptible
from d2lite.widgets.explain_error import exception_name, truncate
from d2lite.widgets.printing import Lines, printing_to
from notebook_ranks.shared.format import text_of

__all__ = ["Training"]

GRACE_S = 2.0  # seconds after Stop, or after an interrupt, in which a function may end by itself

_live: "weakref.WeakSet[Training]" = weakref.WeakSet()  # what a process that ends must stop
_Point = tuple[int | None, str, float, Any]  # rank (None outside a pool), quantity, x, y


@dataclass(kw_only=True)
class Progress:
    """What a training function has reported so far.

    `doing` is its last event, "starting" before the first. `epoch` and `step` count from 0; `steps` is the number of
    steps in an epoch (0 while unknown), `steps_done` the number of steps begun in all epochs. `has_run` is whether the
    function has reported a Run of its own.
    """

    doing: str = "starting"
    epoch: int = 0
    step: int = 0
    steps: int = 0
    steps_done: int = 0
    has_run: bool = False


@dataclass(frozen=True)
class TrainingOutcome:
    """How a training run ended: its status, the end in words, the seconds, and the exception that ended it, if any."""

    status: str
    words: str
    seconds: float
    error: BaseException | None = None


class Training:
    """One call of `function(**arguments)` in the background; with `animated` it gets an `animator` as well.

    `runs` are its runs so far: one, or more if the function begins several. `progress` is what it has reported, `lines`
    are the lines that it printed. `outcome` is None until `ended`, a threading.Event, is set.
    """

    def __init__(
        self, function: Callable[..., Any], arguments: Mapping[str, Any], devices: str = "", animated: bool = True
    ) -> None:
        self.function, self.arguments, self.animated = function, arguments, animated
        self.runs = [
            Run(
                settings={name: _savable(value) for name, value in arguments.items()},
                devices=devices,
                dataset="",
                num_examples=0,
            )
        ]
        self.progress, self.lines, self.ended = Progress(), Lines(), threading.Event()
        self.outcome: TrainingOutcome | None = None
        self._points: list[_Point] = []
        self._recorded: dict[str, Any] = {}  # the last "step" and the last "images" that nobody has taken
        self._diverged: Diverged | None = None
        self._lock, self._stop, self._started = threading.Lock(), threading.Event(), 0.0
        self._asked: float | None = None  # when it was first asked to stop
        self._why_stopped = "stopped"  # for the outcome
        self._interruptible = Interruptible()
        self._thread = threading.Thread(target=self._run_function, name="d2lite-training", daemon=True)

    def start(self) -> "Training":
        """Start the thread and return self; it first stops a training that runs already in this process."""
        self._started = time.monotonic()
        _live.add(self)
        try:
            self._thread.start()
        except BaseException:
            _live.discard(self)
            raise
        return self

    def stop(self) -> None:
        """Ask the function to end: it ends at its next minibatch, evaluation batch or point."""
        if self._asked is None:
            self._asked = time.monotonic()
        self._stop.set()

    def interrupt(self) -> None:
        """Raise Stopped at the next line of Python that the function executes; async_exception.py has the limits."""
        self.stop()
        self._interruptible.interrupt()

    def end(self) -> bool:
        """Stop it, interrupt it if it does not see that for GRACE_S; return whether it ended within twice that time."""
        self.stop()
        if self.ended.wait(GRACE_S):
            return True
        self.interrupt()
        return self.ended.wait(GRACE_S)

    @property
    def stopping(self) -> bool:
        """Whether it has been asked to stop and has not ended yet."""
        return self._stop.is_set() and not self.ended.is_set()

    @property
    def why_running(self) -> str:
        """Why it still runs, in words, if it was asked to stop GRACE_S ago; else ""."""
        now, interrupted = time.monotonic(), self._interruptible.at
        if not self.stopping or self._asked is None or now < self._asked + GRACE_S:
            return ""
        if interrupted is None or now < interrupted + GRACE_S:
            return (
                "Stop ends a function at its next minibatch or point (animator.add), and this one has reported none "
                "since. Press Interrupt: it raises Stopped at the function's next line of Python."
            )
        return (
            f"Interrupted {now - interrupted:.0f} s ago, and it still runs: it is inside one long call (a sleep, "
            "a wait, C code), or it catches every exception. It ends when that call returns, or with the kernel: menu "
            "Kernel, Restart Kernel."
        )

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the thread, at most `timeout` seconds; return whether it has ended."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def run(self) -> Run:
        """The run that trains now, or the last one."""
        return self.runs[-1]

    @property
    def seconds(self) -> float:
        """Seconds since the start, or those of the complete call once it has ended."""
        return self.outcome.seconds if self.outcome else time.monotonic() - self._started

    @property
    def error(self) -> BaseException | None:
        """The exception that ended it, if one did."""
        return self.outcome.error if self.outcome else None

    def take_recorded(self) -> tuple[Any, Any]:
        """Return the RecordedStep and the ImageGuesses that came since the last call, None for what did not come."""
        recorded, self._recorded = self._recorded, {}
        return recorded.get("step"), recorded.get("images")

    def read_points(self) -> None:
        """Move the points received so far into the run; values on a GPU are waited for here, not in the loop."""
        with self._lock:
            points, self._points = self._points, []
            for rank, quantity, x, y in points:
                y, name = float(y), quantity if rank is None else f"{quantity}, rank {rank}"
                own = {} if rank is None else {"rank": rank, "quantity": quantity}
                curve = self.run.curves.setdefault(name, {"x": [], "y": []} | own)
                curve["y"].append(y)
                curve["x"].append(x)
                if not math.isfinite(y) and self._diverged is None:
                    at, unit = self.progress.steps_done, "step"
                    if not at:  # no minibatch was reported
                        at, unit = len(curve["y"]), "point"
                    lr = self.arguments.get("lr")
                    lr = lr if isinstance(lr, (int, float)) else None
                    self._diverged = Diverged(at, lr, y, self.run, unit, name)
            if points:
                in_order = sorted(self.run.curves.items(), key=lambda item: item[1].get("rank", -1))
                self.run.curves = dict(in_order)
                first = next(iter(self.run.curves))
                if not self.progress.has_run and is_accuracy(first):
                    self.run.accuracies[:] = self.run.curves[first]["y"]

    def _run_function(self) -> None:
        error: BaseException | None = None
        status = words = "failed"
        try:
            try:
                with listening(self._on_event), printing_to(self.lines):
                    self._end_earlier_trainings()
                    animator = {"animator": Animator("epoch", "test accuracy")} if self.animated else {}
                    result = self._interruptible.call(self.function, **self.arguments, **animator)
                    _check_result(result)
                if isinstance(result, Run):
                    self._adopt(result)
                self.read_points()
                if self._diverged:
                    raise self._diverged
                status = words = "finished"
            except Stopped:
                status, words = "stopped", self._why_stopped
            except Diverged as diverged:
                if isinstance(diverged.run, Run):
                    self._adopt(diverged.run)
                status, words = diverged.status, truncate(text_of(diverged))
            self.read_points()
        except BaseException as other:  # whatever it is, the notebook shows it
            error, status, words = other, f"failed: {exception_name(other)}", "failed"
        try:
            self.read_points()
        except Exception as other:  # a value that cannot be read, from a GPU that has failed
            error = error or other
        finally:
            for run in self.runs:
                run.status = status if run is self.run or run.status == "running" else run.status
            self.outcome = TrainingOutcome(status, words, self.seconds, error)
            _live.discard(self)
            self.ended.set()

    def _end_earlier_trainings(self) -> None:
        """Stop the trainings that began earlier in this process: two at once would make the seconds of both wrong."""
        for earlier in [training for training in list(_live) if training._started < self._started]:
            self.progress.doing = "waiting for an earlier run"
            earlier._why_stopped = "stopped, because another run was started: the times of two at once would be wrong"
            if not earlier.end():
                print(
                    "An earlier run in this kernel does not end, so the seconds of both are too long. "
                    "It ends with the kernel: menu Kernel, Restart Kernel."
                )
        if self._stop.is_set():
            raise Stopped

    def _on_event(self, event: str, **facts: Any) -> None:
        if self._stop.is_set():
            raise Stopped
        if event == "waiting":
            return  # ranks are at work, and have nothing to report
        if event == "recorded step":
            self._recorded = {**self._recorded, "step": facts["recorded"]}
            return
        if event == "tested images":
            self._recorded = {**self._recorded, "images": facts["tested"]}
            return
        progress, run = self.progress, self.run
        progress.doing = event
        if event == "run":
            self._adopt(facts["run"])
        elif event == "minibatch":
            progress.epoch, progress.step, progress.steps = facts["epoch"], facts["step"], facts["steps"]
            progress.steps_done += 1
            if not progress.has_run:
                run.dataset = facts["dataset"]
        elif event == "epoch" and not progress.has_run:
            run.seconds.append(facts["seconds"])
            run.num_examples = facts["num_examples"]
        elif event == "point":
            rank, points = facts.get("rank"), zip(facts["names"], facts["x"], facts["y"], strict=False)
            with self._lock:
                self._points += [(rank, *point) for point in points]
            if all(isinstance(y, float) for y in facts["y"]):
                self.read_points()
        if self._diverged:
            raise self._diverged

    def _adopt(self, run: Run) -> None:
        """Keep the function's own Run instead of the one made from its events: it holds more."""
        with self._lock:
            if any(run is known for known in self.runs):
                return
            run.settings = {**self.runs[0].settings, **run.settings}
            if self.progress.has_run:
                self.runs.append(run)
            else:
                run.curves = run.curves or self.run.curves
                self.runs, self.progress.has_run = [run], True


def _savable(value: Any) -> Any:
    """A value in a form that can be saved as JSON."""
    return value if value is None or isinstance(value, (bool, int, float, str)) else _short.repr(value)


_short = reprlib.Repr()  # of bounded length, and never an exception
_short.maxother = _short.maxstring = 200


def _stop_all() -> None:
    """Stop what still trains when the process ends: a thread must not be inside torch when the interpreter ends."""
    for training in list(_live):
        training.stop()
    for training in list(_live):
        training.end()


atexit.register(_stop_all)


def _check_result(result: Any) -> None:
    """Raise TypeError if a training function has returned a coroutine or a generator, whose lines have yet to run."""
    if inspect.iscoroutine(result) or inspect.isgenerator(result):
        result.close()
    elif not inspect.isasyncgen(result):
        return
    kind = "an async generator" if inspect.isasyncgen(result) else f"a {type(result).__name__}"
    raise TypeError(
        f"function: expected a training function that is done when it returns, got one that returned {kind}, whose "
        "lines have not run. Call a function without async and yield, or return something else."
    )
