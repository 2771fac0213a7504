"""A training function in a thread: followed, stopped, kept as a Run, and gone afterwards."""

import math
import sys
import threading
import time

import pytest
import torch

from d2lite import train
from d2lite.data.batch_iterator import BatchIterator
from d2lite.run_events import Diverged, Stopped, emit
from d2lite.training.run_record import Run
from d2lite.widgets.background import Training
from d2lite.widgets.explain_error import explain_error
from d2lite.widgets.printing import Lines, printing_to


def batches(n=100, batch_size=10, seed=0):
    return BatchIterator(torch.zeros(n, 1, 1, 1, dtype=torch.uint8), torch.zeros(n), batch_size, "toys", seed=seed)


def num_threads():
    """The number of threads without those of replica_threads.py, which stay for the next step."""
    return sum(not thread.name.startswith("d2lite-core") for thread in threading.enumerate())


@pytest.fixture(autouse=True)
def no_thread_left():
    before, streams = num_threads(), (sys.stdout, sys.stderr)
    yield
    assert num_threads() == before
    assert (sys.stdout, sys.stderr) == streams


def run_to_end(function, animated=True, **arguments):
    training = Training(function, arguments, "a toy", animated).start()
    assert training.join(20) and training.ended.is_set()
    return training


def d2l_like(lr, num_epochs=3, animator=None):
    """Returns nothing, as d2l's own does."""
    train_iter = batches()
    for epoch in range(num_epochs):
        for _ in train_iter:
            pass
        animator.add(epoch + 1, (epoch + 1) / 10)


def test_without_a_run_of_its_own_the_function_s_events_make_one():
    run = run_to_end(d2l_like, lr=0.5).run
    assert run.settings == {"lr": 0.5} and run.devices == "a toy"
    assert (run.dataset, run.num_examples, run.status) == ("toys", 100, "finished")
    assert run.accuracies == [0.1, 0.2, 0.3] and len(run.seconds) == 3 and run.examples_per_s > 0
    assert run.curves == {"test accuracy": {"x": [1, 2, 3], "y": [0.1, 0.2, 0.3]}}


def test_a_function_s_own_run_is_kept():
    training = run_to_end(train, num_gpus=2, batch_size=50, lr=0.1, num_epochs=1, num_examples=100)
    (run,) = training.runs
    assert run.status == "finished" and len(run.losses) == 2 and training.progress.steps_done == 2
    assert run.settings["num_examples"] == 100 and run.settings["seed"] == 0
    assert run.curves["test accuracy"]["y"] == run.accuracies and len(run.accuracies) == 1


def test_several_runs_in_one_function_are_several_runs():
    def both(lr, animator):
        train(1, 50, lr, num_epochs=1, num_examples=100, animator=animator)
        return train(2, 50, lr, num_epochs=2, num_examples=100, animator=animator)

    one, two = run_to_end(both, lr=0.1).runs
    assert [len(run.accuracies) for run in (one, two)] == [1, 2]
    assert [run.settings["num_gpus"] for run in (one, two)] == [1, 2]
    assert [len(run.curves["test accuracy"]["x"]) for run in (one, two)] == [1, 2]


def test_stop_ends_within_one_step():
    steps, at_three, go = [], threading.Event(), threading.Event()

    def loop(animator):
        for i in range(1000):
            steps.append(i)
            if i == 3:
                at_three.set()
                go.wait(10)
            animator.add(i, 0.5)

    training = Training(loop, {}).start()
    at_three.wait(10)
    training.stop()
    assert training.stopping
    go.set()
    assert training.join(10) and steps == [0, 1, 2, 3] and training.run.status == "stopped"
    assert training.run.curves["test accuracy"]["x"] == [0, 1, 2]  # the partial run is kept


def test_stop_while_it_waits_for_an_earlier_run_ends_it_before_it_begins():
    may_end, calls = threading.Event(), []
    earlier = Training(lambda: may_end.wait(10), {}, animated=False).start()
    later = Training(lambda: calls.append(1), {}, animated=False).start()
    while later.progress.doing == "starting":
        time.sleep(0.001)
    assert later.progress.doing == "waiting for an earlier run"
    later.stop()
    may_end.set()
    assert earlier.join(10) and later.join(10)
    assert calls == [] and later.run.status == "stopped"


@pytest.mark.parametrize("event", ["minibatch", "evaluation"])
def test_stop_takes_effect_between_batches_and_is_not_swallowed(event):
    ready, seen = threading.Event(), []

    def loop():
        while True:
            for _ in batches(seed=0 if event == "minibatch" else None):
                try:
                    seen.append(1)
                    ready.set()
                    time.sleep(0.001)
                except Exception:
                    pytest.fail("swallowed")

    training = Training(loop, {}, animated=False).start()
    ready.wait(10)
    training.stop()
    before = len(seen)
    assert training.join(10) and training.run.status == "stopped" and len(seen) <= before + 1


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_divergence_ends_the_run_and_names_the_step(bad):
    def loop(lr, animator):
        for step, _ in enumerate(batches()):
            if step == 4:
                animator.ylabel = "loss"
                animator.add(step, bad)

    training = run_to_end(loop, lr=3)
    assert training.run.status == "diverged at step 5, lr 3" and training.error is None
    words = f"diverged at step 5, lr 3: the loss is {bad}. Try a learning rate ten times smaller."
    assert training.outcome.words == words and training.outcome.status == training.run.status


def test_a_diverged_run_of_the_function_s_own_is_kept():
    training = run_to_end(train, num_gpus=1, batch_size=50, lr=1e4, num_epochs=3, num_examples=200)
    assert training.run.status.startswith("diverged at step") and len(training.run.losses) >= 1


def test_points_on_a_gpu_are_read_by_read_points_alone(monkeypatch):
    class OnGpu:
        def __init__(self, value):
            self.value = value

        def __float__(self):
            return self.value

    def loop():
        emit("point", names=["test accuracy"], x=[1], y=[OnGpu(0.5)])
        assert training.run.curves == {}
        emit("point", names=["test accuracy"], x=[2], y=[OnGpu(math.nan)])

    training = Training(loop, {}, animated=False)
    training.start()
    assert training.join(10) and training.run.accuracies[0] == 0.5
    assert training.run.status == "diverged at point 2" and training.error is None


def test_an_exception_is_kept_and_explained():
    def broken(lr):
        raise ValueError("the shape is wrong")

    training = run_to_end(broken, animated=False, lr=1)
    assert isinstance(training.error, ValueError) and training.run.status == "failed: ValueError"
    assert training.outcome.words == "failed" and training.seconds == training.outcome.seconds
    assert "ValueError: the shape is wrong" in explain_error(training.error)
    assert 'raise ValueError("the shape is wrong")' in explain_error(training.error)


def test_a_cell_is_named_rather_than_the_library_below():
    code = "import torch\ndef f(lr):\n    return torch.zeros(2, 3) @ torch.zeros(2, 3)\n"
    space = {}
    exec(compile(code, "<ipython-input-1>", "exec"), space)
    assert "in f, line 3" in explain_error(run_to_end(space["f"], animated=False, lr=1).error)


def test_only_this_thread_s_prints_are_taken(capsys):
    def chatty():
        print("epoch 1")
        print("to stderr", file=sys.stderr)
        inside.set()
        outside.wait(10)

    inside, outside = threading.Event(), threading.Event()
    training = Training(chatty, {}, animated=False).start()
    inside.wait(10)
    print("from the cell")
    outside.set()
    training.join(10)
    printed = str(training.lines)
    assert printed == "epoch 1\nto stderr"
    assert capsys.readouterr() == ("from the cell\n", "")


def test_two_threads_at_the_same_time_keep_their_prints_apart():
    barrier, lines = threading.Barrier(2, timeout=10), {"a": Lines(), "b": Lines()}

    def chatty(name):
        with printing_to(lines[name]):
            for i in range(50):
                barrier.wait()
                print(f"{name}{i}")

    threads = [threading.Thread(target=chatty, args=name) for name in lines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    for name, printed in lines.items():
        assert str(printed).split() == [f"{name}{i}" for i in range(50)]


def test_a_training_stops_the_one_that_runs_already_and_begins_when_that_has_ended():
    running, seconds = [], []

    def train(name):
        running.append(name)
        seconds.append(len(running))
        try:
            for _ in range(2000 if name == "first" else 3):
                emit("minibatch", epoch=0, step=0, steps=1, dataset="toys")
                time.sleep(0.01)
        finally:
            running.remove(name)

    first = Training(train, {"name": "first"}, animated=False).start()
    end = time.monotonic() + 20
    while not running:
        assert time.monotonic() < end
        time.sleep(0.01)
    second = Training(train, {"name": "second"}, animated=False).start()
    assert first.join(20) and second.join(20)
    assert seconds == [1, 1]  # never both at once
    assert (first.outcome.status, second.outcome.status) == ("stopped", "finished")
    assert "another run was started" in first.outcome.words


def test_a_training_that_does_not_end_is_named_by_the_next_one(monkeypatch):
    monkeypatch.setattr("d2lite.widgets.background.GRACE_S", 0.1)
    gate, running = threading.Event(), threading.Event()

    def deaf():
        running.set()
        while not gate.is_set():
            try:
                time.sleep(0.05)
            except Stopped:
                pass

    first = Training(deaf, {}, animated=False).start()
    assert running.wait(20)
    second = Training(lambda: None, {}, animated=False).start()
    assert second.join(20) and second.outcome.status == "finished"
    assert "An earlier run in this kernel does not end" in str(second.lines)
    gate.set()
    assert first.join(20)


def test_lines_are_those_a_terminal_shows():
    lines = Lines(most=3)
    for text in ("one\ntwo", "!\n", "\r10%", "\r20%\r", "30%\n", "four\n"):
        lines.write(text)
    assert str(lines) == "30%\nfour"
    with printing_to(lines):
        print("five", end="")
    assert str(lines).endswith("four\nfive")


def test_settings_keep_plain_values_only():
    training = run_to_end(lambda net: None, animated=False, net=torch.nn.ReLU())
    assert training.run.settings == {"net": "ReLU()"}


def test_a_run_made_elsewhere_and_returned_is_taken():
    mine = Run(
        settings={"lr": 2.0}, devices="two ranks", dataset="toys", num_examples=10, accuracies=[0.5], seconds=[1.0]
    )
    training = run_to_end(lambda lr, world_size: mine, animated=False, lr=1.0, world_size=2)
    assert training.runs == [mine] and mine.settings == {"lr": 2.0, "world_size": 2} and mine.status == "finished"


def test_diverged_without_a_step_or_a_rate():
    def loop():
        raise Diverged(1, None, math.nan)

    assert run_to_end(loop, animated=False).run.status == "diverged at step 1"


def test_curves_stand_in_the_order_of_ranks_and_the_first_is_the_accuracy():
    def fn():
        for rank, y in [(1, 0.3), (10, 0.1), (0, 0.5), (0, 0.6), (1, 0.4)]:
            emit("point", names=["test accuracy"], x=[1], y=[y], rank=rank)

    training = Training(fn, {}, animated=False).start()
    assert training.join(10)
    assert list(training.run.curves) == [f"test accuracy, rank {rank}" for rank in (0, 1, 10)]
    assert training.run.accuracies == [0.5, 0.6]
