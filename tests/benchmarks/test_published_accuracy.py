"""The published experiment goes on where it was, and gives each arm the network that the lesson gives it."""

import pytest
import torch

from benchmarks.records import published_accuracy
from benchmarks.records.published_accuracy import ARMS, BASE, start, summary, trials
from d2lite.profiling import compare_arms
from d2lite.training import Trial

SIZE = (120, 2, 20, 2)  # examples, epochs, test examples, width


def pretend(monkeypatch):
    """Replace the training: it adds one to every number of the network, and notes what it was given."""
    given = []

    def train_arm(arm, seed, net, *, num_examples, **size):
        given.append((arm.name, seed, {name: value.clone() for name, value in net.state_dict().items()}))
        for value in net.state_dict().values():
            value += 1
        return Trial(arm, seed, [0.5, 0.25 if arm is BASE else 0.75])

    monkeypatch.setattr(published_accuracy, "train_arm", train_arm)
    return given


def test_an_arm_keeps_the_batch_norm_of_the_same_seed_s_first_network(monkeypatch):
    given = pretend(monkeypatch)
    rows = list(trials(ARMS, range(2), *SIZE))
    assert [(row["arm"], row["seed"]) for row in rows] == [(arm.name, seed) for seed in range(2) for arm in ARMS]
    states = {(name, seed): state for name, seed, state in given}
    for seed in range(2):
        first, second = states[BASE.name, seed], states["two devices, same network", seed]
        new = states["two devices, new network", seed]
        assert torch.equal(second["1.running_var"], first["1.running_var"] + 1)  # trained once
        assert torch.equal(second["1.weight"], first["1.weight"] + 1)
        assert torch.equal(second["0.weight"], first["0.weight"])  # drawn again
        assert all(torch.equal(new[name], first[name]) for name in first)


def test_what_is_done_is_left_out_and_what_is_kept_is_made_again(monkeypatch):
    given = pretend(monkeypatch)
    done = {(arm.name, 0) for arm in ARMS if arm.kept == "nothing"}
    rows = list(trials(ARMS, range(1), *SIZE, done=done))
    assert [row["arm"] for row in rows] == ["two devices, same network"]
    assert [name for name, *_ in given] == [BASE.name, "two devices, same network"]
    assert list(trials(ARMS, range(1), *SIZE, done={(arm.name, 0) for arm in ARMS})) == []


def test_weights_have_the_lesson_s_deviation():
    net = start(3, width=8)
    assert abs(net[-1].weight.std().item() - 0.01) < 0.002
    assert torch.equal(net[0].weight, start(3, width=8)[0].weight)
    assert not torch.equal(net[0].weight, start(4, width=8)[0].weight)


def test_without_a_gpu_it_says_what_to_do(monkeypatch):
    monkeypatch.setattr(published_accuracy, "num_gpus", lambda: 0)
    with pytest.raises(SystemExit, match="without a GPU this takes days. Try --width 8"):
        published_accuracy.main([])


def test_arms_are_compared_seed_by_seed_whatever_the_order_of_the_trials():
    """Differences of 0.02 and 0.03 are shown in pairs; seeds alone spread ten times as far."""
    base, gains = {0: 0.70, 1: 0.90, 2: 0.50, 3: 0.80}, {0: 0.02, 1: 0.03, 2: 0.02, 3: 0.03}
    rows = [{"arm": BASE.name, "seed": seed, "accuracies": [0.1, base[seed]]} for seed in base]
    rows += [{"arm": ARMS[1].name, "seed": s, "accuracies": [0.1, base[s] + gains[s]]} for s in (2, 0, 3, 1)]
    rows += [{"arm": ARMS[2].name, "seed": 0, "accuracies": [0.6]}]  # stopped after its first seed
    first, second, verdict, third = summary(rows)
    assert first == "one device: 0.725 (0.500 - 0.900)" and second.startswith(ARMS[1].name)
    assert verdict.strip() == str(compare_arms(base.values(), [base[s] + gains[s] for s in base], paired=True))
    assert compare_arms(base.values(), [base[s] + gains[s] for s in base], paired=True).is_shown
    assert third.startswith(ARMS[2].name) and "+" not in third
