"""A training function in a thread of its own: started, heard, stopped, recorded. No widget stands here.

The function tells what it does (see watch.py); `Training` keeps it as a Run at all times, so that a run that is
stopped, diverges or fails has a record too.
"""

import atexit
import contextvars
import itertools
import linecache
import math
import sys
import threading
import time
import traceback
import weakref
from contextlib import contextmanager

from d2lite.events import Diverged, Stopped, listening
from d2lite.figures.runs import is_accuracy
from d2lite.training.run import Run
from d2lite.widgets.animator import Animator

__all__ = ["Lines", "Training", "explain", "printing_to"]

_live = weakref.WeakSet()  # trainings that a process which ends must stop


class Training:
    """One run of `function(**arguments)` in the background; with `animated` it gets an `animator` as well.

    `runs` are the records, at any time: one, or more where the function begins several. `error` is the exception
    that ended it, if one did, `outcome` the end in words; `lines` what it printed; `epoch` and `step` (from 0) are
    where it stands, `steps` those of an epoch; `ended` is an Event.
    """

    def __init__(self, function, arguments, devices="", animated=True):
        self.function, self.arguments, self.animated = function, arguments, animated
        self.runs = [Run({name: _plain(value) for name, value in arguments.items()}, devices, "", 0)]
        self.lines, self.error, self.outcome, self.ended = Lines(), None, "", threading.Event()
        self.doing, self.epoch, self.step, self.steps, self.steps_done = "starting", 0, 0, 0, 0
        self._told_run, self._points, self._lock = False, [], threading.Lock()
        self._stop, self._diverged = threading.Event(), None
        self._started = self._seconds = None
        self._thread = threading.Thread(target=self._work, name="d2lite-training", daemon=True)

    def start(self):
        """Start the thread and return self."""
        _live.add(self)
        self._started = time.monotonic()
        self._thread.start()
        return self

    def stop(self):
        """Ask the function to end: it does at its next minibatch, evaluation batch or point."""
        self._stop.set()

    @property
    def stopping(self):
        """Whether it has been asked to stop and has not ended yet."""
        return self._stop.is_set() and not self.ended.is_set()

    def join(self, timeout=None):
        """Wait for the thread, at most `timeout` seconds; return whether it has ended."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def run(self):
        """The record of the run that trains, or trained last."""
        return self.runs[-1]

    @property
    def seconds(self):
        """Seconds since the start, or of the whole run once it has ended."""
        return self._seconds if self._seconds is not None else time.monotonic() - self._started

    def read_points(self):
        """Move the points heard so far into the record; values on a GPU are waited for here, not in the loop."""
        with self._lock:
            points, self._points = self._points, []
            for rank, quantity, x, y in points:
                y, name = float(y), quantity if rank is None else f"{quantity}, rank {rank}"
                own = {} if rank is None else {"rank": rank, "quantity": quantity}
                curve = self.run.curves.setdefault(name, {"x": [], "y": []} | own)
                curve["y"].append(y)
                curve["x"].append(x)
                if not math.isfinite(y) and self._diverged is None:
                    known = self.steps_done > 0
                    at = self.steps_done if known else len(curve["y"])
                    lr = self.arguments.get("lr") if isinstance(self.arguments.get("lr"), (int, float)) else None
                    self._diverged = Diverged(at, lr, y, self.run, "step" if known else "point", name)
            if points:
                in_order = sorted(self.run.curves.items(), key=lambda item: item[1].get("rank", -1))
                self.run.curves = dict(in_order)
                first = next(iter(self.run.curves))
                if not self._told_run and is_accuracy(first):
                    self.run.accuracies[:] = self.run.curves[first]["y"]

    def _work(self):
        try:
            with listening(self._hear), printing_to(self.lines):
                animator = {"animator": Animator("epoch", "test accuracy")} if self.animated else {}
                result = self.function(**self.arguments, **animator)
            if isinstance(result, Run):
                self._adopt(result)
            self.read_points()
            if self._diverged:
                raise self._diverged
            status = "finished"
        except Stopped:
            status = "stopped"
        except Diverged as error:
            if error.run is not None:
                self._adopt(error.run)
            status, self.outcome = error.status, str(error)
        except BaseException as error:  # whatever it is, the notebook is told
            self.error, status = error, f"failed: {type(error).__name__}"
        try:
            self.read_points()
        finally:
            for run in self.runs:
                run.status = status if run is self.run or run.status == "running" else run.status
            self._seconds, self.outcome = self.seconds, self.outcome or status.split(":")[0]
            _live.discard(self)
            self.ended.set()

    def _hear(self, event, **facts):
        if self._stop.is_set():
            raise Stopped
        if event == "waiting":
            return  # ranks are at work and have nothing to tell
        self.doing = event
        if event == "run":
            self._adopt(facts["run"])
        elif event == "minibatch":
            self.epoch, self.step, self.steps = facts["epoch"], facts["step"], facts["steps"]
            self.steps_done += 1
            if not self._told_run:
                self.run.dataset = facts["dataset"]
        elif event == "epoch" and not self._told_run:
            self.run.seconds.append(facts["seconds"])
            self.run.num_examples = facts["num_examples"]
        elif event == "point":
            with self._lock:
                ranks = itertools.repeat(facts.get("rank"))
                self._points += zip(ranks, facts["names"], facts["x"], facts["y"], strict=False)
            if all(isinstance(y, float) for y in facts["y"]):
                self.read_points()
        if self._diverged:
            raise self._diverged

    def _adopt(self, run):
        """Take the function's own record for the record: it knows more than what was heard."""
        with self._lock:
            if any(run is known for known in self.runs):
                return
            run.settings = {**self.runs[0].settings, **run.settings}
            if self._told_run:
                self.runs.append(run)
            else:
                run.curves = run.curves or self.run.curves
                self.runs, self._told_run = [run], True


class Lines:
    """The last lines that were written, as a terminal would show them ("\\r" writes over a line)."""

    def __init__(self, most=200):
        self._most, self._lines, self._lock = most, [""], threading.Lock()

    def write(self, text):
        """Append text, of any number of lines."""
        with self._lock:
            first, *rest = str(text).split("\n")
            for i, part in enumerate([self._lines.pop() + first, *rest]):
                shown = [piece for piece in part.split("\r") if piece]
                self._lines.append((shown or [""])[-1] + ("\r" if i == len(rest) and part.endswith("\r") else ""))
            del self._lines[: -self._most]
        return len(text)

    def __str__(self):
        with self._lock:
            return "\n".join(line.rstrip("\r") for line in self._lines).rstrip("\n")


_sink = contextvars.ContextVar("d2lite_sink", default=None)
_open, _open_lock = [], threading.Lock()  # the sinks in use: while there is one, the streams are ours


class _Divert:
    """A stream that passes on what is written, except by a thread that has a sink."""

    def __init__(self, stream):
        self._stream = stream

    def write(self, text):
        sink = _sink.get()
        return (self._stream if sink is None else sink).write(text)

    def __getattr__(self, name):
        return getattr(self._stream, name)


@contextmanager
def printing_to(sink):
    """Send what this thread writes to stdout and stderr to `sink.write`; other threads print as ever."""
    with _open_lock:
        _open.append(sink)
        for name in ("stdout", "stderr"):
            if not isinstance(getattr(sys, name), _Divert):
                setattr(sys, name, _Divert(getattr(sys, name)))
    token = _sink.set(sink)
    try:
        yield sink
    finally:
        _sink.reset(token)
        with _open_lock:
            _open.remove(sink)
            for name in ("stdout", "stderr"):
                stream = getattr(sys, name)
                if not _open and isinstance(stream, _Divert):
                    setattr(sys, name, stream._stream)


def explain(error):
    """Return an exception in plain words: its kind, its message, and the learner's line that raised it."""
    text = f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    mine = [f for f in frames if "ipykernel" in f.filename or f.filename.startswith("<")]
    if not (mine or frames):
        return text
    frame = (mine or frames)[-1]
    line = frame.line or linecache.getline(frame.filename, frame.lineno).strip()
    return f"{text}\nin {frame.name}, line {frame.lineno}: {line}"


def _plain(value):
    """A value as a record can keep it."""
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)


def _stop_all():
    """Stop what still trains when the process ends: a thread inside torch must not see the interpreter go."""
    for training in list(_live):
        training.stop()
    for training in list(_live):
        training.join(5)


atexit.register(_stop_all)
