"""Animator: d2l's call, few pushes, the last state always, nothing left behind."""

import math
import subprocess
import sys
import threading

import nbformat
import numpy as np
import pytest
import torch
from nbclient import NotebookClient

from d2lite.run_events import Diverged, Stopped, listening
from d2lite.widgets import animator as module
from d2lite.widgets import live_figure
from d2lite.widgets.animator import Animator

PLOTLY = "application/vnd.plotly.v1+json"


class Shell:
    """An IPython shell of a kernel, as far as it is used."""

    kernel = True

    def __init__(self):
        self.hooks, self.shown, self.words, self.events = [], [], [], self

    def register(self, event, hook):
        assert event == "post_run_cell"
        self.hooks.append(hook)

    def unregister(self, event, hook):
        self.hooks.remove(hook)

    def cell_ends(self):
        for hook in list(self.hooks):
            hook(None)

    def display(self, bundle, raw, display_id, update):
        """Keep what is shown: the figures, and the words in the output above them."""
        shown = self.words if display_id.endswith("-words") else self.shown
        shown.append((bundle, display_id, update))


class Clock:
    """A clock that stands, and timers that go off when it is turned."""

    def __init__(self):
        self.now, self.timers = 100.0, []

    def monotonic(self):
        return self.now

    def turn(self, seconds):
        self.now += seconds
        for timer in [t for t in self.timers if t.at <= self.now + 1e-9]:
            self.timers.remove(timer)
            timer.go()


@pytest.fixture
def clock(monkeypatch):
    clock, real = Clock(), threading.current_thread

    class Timer:
        running = None

        def __init__(self, delay, fn):
            self.at, self.fn = clock.now + delay, fn

        def start(self):
            clock.timers.append(self)

        def go(self):
            Timer.running = self
            self.fn()
            Timer.running = None

        def cancel(self):
            if self in clock.timers:
                clock.timers.remove(self)

        def join(self):
            pass

    monkeypatch.setattr(module.time, "monotonic", clock.monotonic)
    monkeypatch.setattr(module.threading, "Timer", Timer)
    monkeypatch.setattr(module.threading, "current_thread", lambda: Timer.running or real())
    return clock


@pytest.fixture
def shell(monkeypatch):
    shell = Shell()
    monkeypatch.setattr(module, "notebook_shell", lambda: shell)
    monkeypatch.setattr("IPython.display.display", shell.display)
    return shell


@pytest.fixture(autouse=True)
def no_thread_left():
    before = threading.active_count()
    yield
    assert threading.active_count() == before


def widget_of(animator):
    return animator._live.widget


def test_d2ls_call(capsys):
    animator = Animator("epoch", "value", ["loss", "acc"], [1, 3], [0, 1], "linear", "linear", ("-",), 1, 1, (3.5, 2.5))
    animator.add(1, (0.5, None))
    animator.add(2, (0.25, 0.75))
    animator.add([3, 4], [torch.tensor(0.125), np.float32(0.5)])
    assert animator.X == [[1, 2, 3], [2, 4]]
    assert animator.Y == [[0.5, 0.25, 0.125], [0.75, 0.5]]
    assert all(type(y) is float for ys in animator.Y for y in ys)
    animator.flush()
    assert capsys.readouterr().out.splitlines()[-1] == "epoch 3: loss 0.125, acc 0.5"


def test_one_curve(capsys):
    animator = Animator("epoch", "test acc")
    animator.add(1, 0.5)
    animator.add(2, torch.tensor(0.75, requires_grad=True))
    assert (animator.X, animator.Y) == ([[1, 2]], [[0.5, 0.75]])
    animator.flush()
    assert "epoch 2: test acc 0.75" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((1, "high"), TypeError, "add: expected a number, or one per curve, got 'high'"),
        (([1, 2], [0.1]), ValueError, "as many x as y, got 2 and 1"),
    ],
)
def test_wrong_points_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        Animator().add(*arguments)


def test_wrong_options_are_refused():
    with pytest.raises(ValueError, match="nrows, ncols: expected 1 and 1, got 2"):
        Animator(nrows=2)
    with pytest.raises(ValueError, match="yscale: expected 'linear' or 'log'"):
        Animator(yscale="logarithmic")


@pytest.mark.parametrize("bad", [math.nan, math.inf, torch.tensor(math.nan)])
def test_what_is_not_finite_is_kept_and_raised(bad, capsys):
    animator = Animator("epoch", "loss")
    animator.add(1, 0.5)
    with pytest.raises(Diverged, match="diverged at point 2: the loss is"):
        animator.add(2, bad)
    animator.add(3, 0.25)  # it was said once
    assert animator.X == [[1, 2, 3]] and not math.isfinite(animator.Y[0][1])
    animator.flush()


def test_a_thousand_points_are_pushed_five_times_a_second(shell, clock):
    animator = Animator("epoch", "acc")
    pushes = []
    push = live_figure.Live.push
    animator._live.push = lambda *args: (pushes.append(clock.now), push(animator._live, *args))
    for i in range(1000):
        animator.add(i, i / 1000)
        clock.turn(0.002)
    assert 9 <= len(pushes) <= 11  # of two seconds
    assert min(np.diff(pushes)) >= module.PUSH_EVERY_S - 1e-9
    clock.turn(0.2)
    assert list(widget_of(animator).figure.data[0].y)[-1] == 0.999  # the last state, although no further point came
    assert not clock.timers
    shell.cell_ends()


WIDGET = "application/vnd.jupyter.widget-view+json"


def kinds(shell):
    return ["widget" if WIDGET in b else "plotly" if PLOTLY in b else "picture" for b, _, _ in shell.shown]


def test_the_widget_follows_and_a_static_figure_takes_its_place(shell, clock):
    animator = Animator("epoch", "acc", legend=["a", "b"], xlim=[0, 5], yscale="log")
    animator.add(1, (0.5, None))
    (bundle, name, update) = shell.shown[0]
    assert kinds(shell) == ["picture"] and not update
    assert "<svg" in bundle["image/svg+xml"] and bundle["text/plain"] == "epoch 1: a 0.5"
    assert ' width="640" ' in bundle["image/svg+xml"]  # of figsize
    for i in (2, 3):
        animator.add(i, (1 / 2**i, 0.5 + i / 10))
        clock.turn(1)
    widget = widget_of(animator)
    assert [list(t.y) for t in widget.figure.data] == [[0.5, 0.25, 0.125], [0.7, 0.8]]
    assert kinds(shell) == ["picture", "widget"]
    animator.add(4, (0.1, 0.9))
    shell.cell_ends()
    bundle, same, update = shell.shown[2]
    assert (same, update) == (name, True) and kinds(shell) == ["picture", "widget", "plotly"]
    assert [t["name"] for t in bundle[PLOTLY]["data"]] == ["a", "b"]
    (before, name, new), (after, same, update) = shell.words
    assert before["text/html"] == "" and (same, new, update) == (name, False, True)
    assert 'alt="Figure. x axis: epoch. y axis: acc. a: 4 points, from 0.5 at 1 to 0.1 at 4.' in after["text/html"]
    assert bundle["text/plain"] == "epoch 4: a 0.1, b 0.9"
    assert widget_of(animator) is None and not shell.hooks and not clock.timers
    widget._view_count = 1
    assert widget.comm is not None
    widget._view_count = 0  # the page has let go of it
    assert widget.comm is None


def test_it_lives_again_in_the_next_cell(shell, clock):
    animator = Animator("epoch", "acc")
    animator.add(1, 0.5)
    shell.cell_ends()
    animator.add(2, 0.5)
    shell.cell_ends()  # plotly makes a new static figure only after another MIME type
    animator.add(3, 0.5)
    clock.turn(1)
    shell.cell_ends()
    assert kinds(shell) == ["picture", "plotly", "picture", "plotly", "widget", "plotly"]
    assert shell.shown[-1][0]["text/plain"] == "epoch 3: acc 0.5"


def test_a_trace_has_at_most_two_thousand_points(shell, clock):
    animator = Animator("step", "loss")
    for i in range(5001):
        animator.add(i, float(i))
    clock.turn(1)
    animator.add(5001, 0.0)
    clock.turn(1)
    x = widget_of(animator).figure.data[0].x
    assert len(x) == 2000 and (x[0], x[-1]) == (0, 5001) and isinstance(x, np.ndarray)
    shell.cell_ends()


class Held:
    """A 0-d tensor on a GPU, as far as it is used; reading it is counted."""

    device, ndim = torch.device("cuda"), 0

    def __init__(self, value):
        self.value, self.reads = value, 0

    def detach(self):
        return self

    clone = detach

    def __float__(self):
        self.reads += 1
        return self.value


def test_values_on_a_gpu_are_read_when_pushed_not_when_added(shell, clock):
    animator = Animator("epoch", "loss")
    animator.add(0, 1.0)
    values = [Held(0.5), Held(math.nan)]
    for i, value in enumerate(values):
        animator.add(i + 1, value)
    assert [v.reads for v in values] == [0, 0]
    clock.turn(1)
    assert [v.reads for v in values] == [1, 1] and animator.Y[0][1] == 0.5
    with pytest.raises(Diverged, match="diverged at point 3"):
        animator.add(3, 0.25)
    shell.cell_ends()


def test_where_somebody_listens_nothing_is_shown(shell):
    has_listener = []
    with listening(lambda event, **facts: has_listener.append((event, facts))):
        Animator("epoch", "acc", legend=["a", "b"]).add(1, (None, 0.5))
    assert has_listener == [("point", {"names": ["b"], "x": [1.0], "y": [0.5]})] and not shell.shown and not shell.hooks


def test_a_listener_stops_a_loop_that_only_adds():
    def listener(event, **facts):
        raise Stopped

    with pytest.raises(Stopped), listening(listener):
        Animator().add(1, 0.5)


@pytest.mark.slow
def test_in_a_script_it_prints_lines_and_the_last_state_at_the_end():
    code = "from d2lite import Animator\na = Animator('epoch', 'acc')\nfor i in range(100): a.add(i, i / 100)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert out[0] == "epoch 0: acc 0" and out[-1] == "epoch 99: acc 0.99" and len(out) <= 4


@pytest.mark.slow
def test_in_a_kernel_the_last_state_is_saved_as_a_picture():
    code = "from d2lite import Animator\na = Animator('epoch', 'acc')\nfor i in range(100): a.add(i, i / 100)"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    NotebookClient(notebook, timeout=60, kernel_name="python3", store_widget_state=False).execute()
    words, output = notebook.cells[0].outputs
    assert (
        'alt="Figure. x axis: epoch. y axis: acc. acc: 100 points, from 0 at 0 to 0.99 at 99.'
        in words.data["text/html"]
    )
    assert output.data["text/plain"] == "epoch 99: acc 0.99" and "<svg" in output.data["image/svg+xml"]
    assert "application/vnd.jupyter.widget-view+json" not in output.data


def test_epochs_stand_at_whole_numbers():
    for xlim, xlabel, step in ((None, "epoch", 1), ([1, 100], "Epochs", 20), (None, "step", None)):
        animator = Animator(xlabel, xlim=xlim)
        with listening(lambda *_, **__: None):
            for epoch in (1, 2, 3):
                animator.add(epoch, 0.5)
        assert animator._layout(is_last=True)["xaxis"].get("dtick") == step
        assert animator._layout()["xaxis"].get("dtick") == (step if xlim else None)  # it may grow
