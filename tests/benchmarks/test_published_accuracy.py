"""The published experiment goes on where it was, and gives each arm the network that the lesson gives it."""

import pytest
import torch

from benchmarks.quotes import of_the_published
from benchmarks.records import published_accuracy
from benchmarks.records.published_accuracy import AGAINST, ALL_FOUR, ONE, arms_of, column, start, summary, trials
from d2lite import resnet18
from d2lite.labs.chapter_09 import Trial, compare_arms, differences

ARMS = arms_of()
KEEPING = [arm.name for arm in ARMS if arm.kept != "nothing"]
SIZE = (120, 2, 2, 20, 2)  # examples, epochs, points, test examples, width


def pretend(monkeypatch):
    """Replace the training: it adds one to every number of the network, and notes what it was given."""
    given = []

    def train_arm(arm, seed, net, *, num_examples, **size):
        given.append((arm.name, seed, {name: value.clone() for name, value in net.state_dict().items()}))
        for value in net.state_dict().values():
            value += 1
        return Trial(arm, seed, [0.5, 0.25 if arm is ARMS[0] else 0.75])

    monkeypatch.setattr(published_accuracy, "train_arm", train_arm)
    return given


def test_each_change_is_alone_and_the_second_run_has_all_four():
    arms = {arm.name: arm for arm in ARMS}
    changes = [differences(arms[ONE], arms[name]) for name in AGAINST]
    assert changes[:4] == [["batch_size"], ["lr"], ["num_gpus"], ["kept"]]
    assert changes[4] == ["batch_size", "lr", "num_gpus", "kept"]
    assert all(differences(arms[name], arms[f"{name}, decay"]) == ["decay_share"] for name in (ONE, ALL_FOUR))
    two = arms[ALL_FOUR]
    assert (arms[ONE].batch_size, arms[ONE].lr, two.batch_size, two.lr, two.num_gpus) == (256, 0.1, 512, 0.2, 2)


def test_an_arm_keeps_what_the_reset_leaves_of_the_same_seed_s_first_network(monkeypatch):
    given = pretend(monkeypatch)
    rows = list(trials(ARMS, range(2), *SIZE))
    assert [(row["arm"], row["seed"]) for row in rows] == [(arm.name, seed) for seed in range(2) for arm in ARMS]
    states = {(name, seed): state for name, seed, state in given}
    for seed in range(2):
        first, second, new = (states[name, seed] for name in (ONE, "what the reset left", "half as many steps"))
        for kept in ("1.running_var", "1.weight", "5.shortcut.bias", "13.bias"):
            assert torch.equal(second[kept], first[kept] + 1), kept  # trained once
        for drawn_again in ("0.weight", "5.shortcut.weight", "13.weight"):
            assert torch.equal(second[drawn_again], first[drawn_again]), drawn_again
        assert all(torch.equal(new[name], first[name]) for name in first)


def test_what_is_done_is_left_out_and_what_is_kept_is_made_again(monkeypatch):
    given = pretend(monkeypatch)
    done = {(arm.name, 0) for arm in ARMS if arm.kept == "nothing"}
    rows = list(trials(ARMS, range(1), *SIZE, done=done))
    assert [row["arm"] for row in rows] == KEEPING
    assert [name for name, *_ in given] == [ONE, *KEEPING]
    assert list(trials(ARMS, range(1), *SIZE, done={(arm.name, 0) for arm in ARMS})) == []


def test_weights_have_the_lesson_s_deviation():
    net = start(3, width=8)
    assert abs(net[-1].weight.std().item() - 0.01) < 0.002
    assert torch.equal(net[0].weight, start(3, width=8)[0].weight)
    assert not torch.equal(net[0].weight, start(4, width=8)[0].weight)


def test_pooled_images_go_through_the_same_network():
    net, X = start(0, width=2, pool=2).eval(), torch.rand(3, 1, 28, 28)
    alone = resnet18(10, width=2).eval()
    alone.load_state_dict(dict(zip(alone.state_dict(), net.state_dict().values(), strict=True)))
    torch.testing.assert_close(net(X), alone(X.view(3, 1, 14, 2, 14, 2).mean((3, 5))))


def test_without_a_gpu_it_says_what_to_do(monkeypatch):
    monkeypatch.setattr(published_accuracy, "num_gpus", lambda: 0)
    with pytest.raises(SystemExit, match="without a GPU this takes days. Try --width 8"):
        published_accuracy.main([])


def test_arms_are_compared_seed_by_seed_whatever_the_order_of_the_trials():
    """Differences of 0.02 and 0.03 are shown in pairs; seeds alone spread ten times as far."""
    base, gains = {0: 0.70, 1: 0.90, 2: 0.50, 3: 0.80}, {0: 0.02, 1: 0.03, 2: 0.02, 3: 0.03}
    rows = [row(ONE, seed, base[seed]) for seed in base]
    rows += [row(ALL_FOUR, seed, base[seed] + gains[seed]) for seed in (2, 0, 3, 1)]
    rows += [row("the learning rate", 0, 0.6)]  # stopped after its first seed
    lines = summary(rows)
    assert lines[0] == f"{ONE}, accuracies: 0.700 0.900 0.500 0.800"
    verdict = compare_arms(base.values(), [base[seed] + gains[seed] for seed in base], paired=True)
    at = lines.index(f"{ALL_FOUR}, accuracies: 0.720 0.930 0.520 0.830")
    assert verdict.is_shown and lines[at + 1].strip() == verdict.in_words(ONE, ALL_FOUR)
    at = lines.index("the learning rate, accuracies: 0.600")
    assert lines[at + 1].startswith("the learning rate, renewed")
    assert column(rows, ONE, "renewed_accuracy") == {seed: 0.5 for seed in base}


def row(arm, seed, accuracy):
    return {"arm": arm, "seed": seed, "accuracies": [0.1, accuracy], "renewed_accuracy": 0.5}


def test_half_as_many_steps_are_shown_to_cost_accuracy_and_the_other_three_changes_are_not():
    for of in ("accuracies", "renewed_accuracy"):
        for name in ("half as many steps", ALL_FOUR):
            assert of_the_published(name, of).num_seeds == (20, 20) and of_the_published(name, of).high < 0
    for name in ("the learning rate", "BatchNorm per device", "what the reset left"):
        assert not of_the_published(name).is_shown
    assert not of_the_published("half as many steps", num_seeds=5).is_shown
