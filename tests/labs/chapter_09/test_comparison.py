"""Arms: the same seeds and the same budget for all, one replica a core or one after another, the same results."""

import math
import threading
import time
from types import SimpleNamespace

import pytest
import torch

from d2lite.labs.chapter_09 import Arm, Trial, comparison, differences, run_arms, start_net, train_arm

SMALL = dict(num_examples=240, num_epochs=2, num_points=2)


@pytest.fixture(scope="module")
def trials():
    arms = [Arm("a", 24, 0.1), Arm("b", 48, 0.2), Arm("two devices", 24, 0.1, num_gpus=2)]
    return run_arms(arms, range(2), **SMALL)


def test_all_arms_see_the_same_examples_and_make_their_own_number_of_steps(trials):
    assert list(trials) == ["a", "b", "two devices"]
    for some in trials.values():
        assert [t.seed for t in some] == [0, 1] and {t.examples for t in some} == {480}
        assert all(len(t.accuracies) == 2 and 0 <= t.accuracy <= 1 and not t.has_diverged for t in some)
    assert [some[0].steps for some in trials.values()] == [20, 10, 20]


def test_side_by_side_gives_what_each_training_gives_alone(trials):
    alone = train_arm(Arm("a", 24, 0.1), 1, start_net(1), num_examples=240, num_epochs=2, seconds=None, num_points=2)
    assert (alone.accuracies, alone.renewed_accuracy) == (trials["a"][1].accuracies, trials["a"][1].renewed_accuracy)


def test_a_net_keeps_its_weights_where_statistics_are_renewed():
    net = start_net(0)
    trial = train_arm(Arm("a", 24, 0.1), 0, net, num_examples=240, num_epochs=1, seconds=None, num_points=1)
    assert not math.isnan(trial.renewed_accuracy)
    norm = net[1]
    assert norm.momentum == 0.1 and norm.num_batches_tracked == 10  # those of the ten minibatches of 24


def test_wall_time_as_the_budget():
    done = []
    arms = [Arm("a", 24, 0.1), Arm("b", 48, 0.1, num_gpus=2)]
    trials = run_arms(arms, [0], 240, seconds=0.05, num_points=2, on_trial=done.append)
    assert [t.arm.name for t in done] == ["a", "b"]
    assert all(t[0].seconds >= 0.05 and len(t[0].accuracies) == 2 for t in trials.values())


def test_the_seconds_to_an_accuracy_are_those_of_the_first_measurement_that_reaches_it():
    trial = Trial(Arm("a"), 0, [0.5, 0.7, 0.6, 0.7], reached_s=[1.0, 2.0, 3.0, 4.0])
    assert [trial.seconds_to(target) for target in (0.5, 0.6, 0.7, 0.71)] == [1.0, 2.0, 2.0, None]


def test_trainings_that_are_timed_run_one_after_another(monkeypatch):
    seen, train = [], comparison.train_arm

    def noted(*job, **budget):
        seen.append("begin")
        time.sleep(0.05)
        trial = train(*job, **budget)
        seen.append("end")
        return trial

    monkeypatch.setattr(comparison, "train_arm", noted)
    run_arms([Arm("a", 24), Arm("b", 48)], range(2), 240, seconds=0.05, num_points=1)
    assert seen == ["begin", "end"] * 4


def test_the_time_of_a_step_has_that_of_its_minibatch_and_not_that_of_the_evaluation(monkeypatch):
    clock, load, evaluate = [0.0], comparison.load_data_fashion_mnist, comparison.evaluate_accuracy

    def load_slowly(*args, **kwargs):
        train_iter, test_iter = load(*args, **kwargs)
        return SlowBatches(train_iter, clock), test_iter

    def evaluate_slowly(*args):
        clock[0] += 1000
        return evaluate(*args)

    monkeypatch.setattr(comparison, "load_data_fashion_mnist", load_slowly)
    monkeypatch.setattr(comparison, "evaluate_accuracy", evaluate_slowly)
    monkeypatch.setattr(comparison, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    trial = train_arm(Arm("a", 60), 0, start_net(0), num_examples=240, num_epochs=1, num_points=2)
    assert trial.steps == trial.seconds == 4 and trial.reached_s == [2, 4]


class SlowBatches:
    """An iterator whose minibatches take a second each, by a clock of its own."""

    def __init__(self, train_iter, clock):
        self.train_iter, self.clock = train_iter, clock

    def __getattr__(self, name):
        return getattr(self.train_iter, name)

    def __len__(self):
        return len(self.train_iter)

    def __iter__(self):
        for batch in self.train_iter:
            self.clock[0] += 1
            yield batch


def test_warm_up_and_decay_of_the_learning_rate():
    arm = Arm("a", lr=0.8, warm_up_epochs=1, decay_share=0.5)
    rates = [arm.lr_at(step, step / 8, steps_per_epoch=4) for step in range(8)]
    assert rates == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8, 0.6, 0.4, 0.2])
    assert Arm("a", lr=0.8).lr_at(0, 0.99, 4) == 0.8


def test_optimizers():
    net = start_net(0)
    assert isinstance(Arm("a", optimizer="Adam").make_optimizer(net), torch.optim.Adam)
    sgd = Arm("a", momentum=0.9).make_optimizer(net)
    assert isinstance(sgd, torch.optim.SGD) and sgd.defaults["momentum"] == 0.9


def test_a_training_that_diverges_ends_there_and_has_all_its_points():
    net = start_net(0)
    with torch.no_grad():
        net[-1].bias.fill_(math.nan)
    trial = train_arm(Arm("a", 24), 0, net, num_examples=240, num_epochs=2)
    assert trial.has_diverged and trial.steps == 1 and len(trial.accuracies) == len(trial.reached_s) == 4


def test_on_trial_is_never_called_twice_at_the_same_time():
    busy = threading.Lock()

    def note(trial):
        assert busy.acquire(blocking=False)
        busy.release()

    run_arms([Arm("a", 60), Arm("b", 120)], range(2), 120, num_epochs=1, num_points=1, on_trial=note)


def test_differences():
    assert differences(Arm("x"), Arm("y")) == []
    assert differences(Arm("x", lr=0.2, kept="weights"), Arm("y")) == ["lr", "kept"]
    assert math.isnan(Trial(Arm("x"), 0).accuracy)


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        (dict(batch_size=1), ValueError, "batch_size: expected a whole number from 2 on, got 1. BatchNorm needs two"),
        (dict(batch_size=6, num_gpus=4), ValueError, "batch_size: expected a whole number from 8 on, got 6"),
        (dict(lr=0), ValueError, "lr: expected a finite number above 0"),
        (dict(momentum=1.0), ValueError, "momentum: expected a number from 0 on, below 1, got 1.0"),
        (dict(warm_up_epochs=-1), ValueError, "warm_up_epochs: expected a finite number from 0 on"),
        (dict(decay_share=1.5), ValueError, "decay_share: expected a number from 0 to 1, got 1.5"),
        (dict(optimizer="LAMB"), ValueError, "optimizer: expected one of SGD, Adam, got 'LAMB'"),
        (dict(kept=None), TypeError, "kept: expected one of nothing"),
        (dict(num_gpus=0), ValueError, "num_gpus: expected a whole number from 1 to 64, got 0"),
    ],
)
def test_settings_that_are_no_arm_are_refused(settings, error, words):
    with pytest.raises(error, match=words):
        Arm("a", **settings)


@pytest.mark.parametrize(
    ("arms", "seeds", "more", "words"),
    [
        ([], [0], {}, "arms: expected one or more, all different"),
        ([Arm("a"), Arm("a", 32)], [0], {}, "arms: expected one or more, all different, got"),
        ([Arm("a")], [0, 0], {}, "seeds: expected one or more, all different"),
        ([Arm("a", 24)], [0], dict(num_examples=25), "arm 'a': expected two examples per device in the last minibatch"),
        ([Arm("a")], [0], dict(seconds=0), "seconds: expected a finite number above 0"),
        ([Arm("a")], [0], dict(num_epochs=0), "num_epochs: expected a finite number above 0"),
        ([Arm("a", kept="weights")], [0], {}, "used: expected the state of a trained network"),
    ],
)
def test_comparisons_that_cannot_be_made_are_refused(arms, seeds, more, words):
    with pytest.raises(ValueError, match=words):
        run_arms(arms, seeds, **more)
