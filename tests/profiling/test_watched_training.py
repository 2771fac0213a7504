"""train_watched: the training of `train`, and true reports of what its devices do."""

import pytest
import torch

from d2lite import train
from d2lite.data import load_data_fashion_mnist
from d2lite.profiling import train_watched
from d2lite.run_events import listening

SETTINGS = {"batch_size": 50, "lr": 0.1, "num_epochs": 2, "num_examples": 170}


def watched(k):
    """A run, and what it reported: its recorded steps and its tested images."""
    found = {"recorded step": [], "tested images": []}

    def listener(event, **facts):
        if event in found:
            found[event] += facts.values()

    with listening(listener):
        run = train_watched(k, **SETTINGS)
    return run, *found.values()


@pytest.mark.parametrize("k", [1, 2, 3])
def test_it_trains_as_train_does_bit_for_bit(k, monkeypatch):
    monkeypatch.setattr("d2lite.profiling.watched_training._EVERY_S", 0.0)  # every step is recorded
    run, steps, _ = watched(k)
    plain = train(k, **SETTINGS)
    assert run.losses == plain.losses and run.accuracies == plain.accuracies
    assert [recorded.step for recorded in steps] == list(range(1, 9))


def test_a_recorded_step_has_the_images_and_the_events_of_each_device(monkeypatch):
    monkeypatch.setattr("d2lite.profiling.watched_training._EVERY_S", 0.0)
    _, steps, _ = watched(3)
    (X, _), *_ = load_data_fashion_mnist(50, 170, seed=0)[0]
    first, last = steps[0], steps[-1]
    assert list(first.shard_sizes) == [17, 17, 16] and sum(last.shard_sizes) == 20
    for i, images in enumerate(first.images):
        start = [0, 17, 34][i]
        assert images.dtype == torch.uint8 and torch.equal(images.float() / 255, X[start : start + 6, 0])
        kinds = [event.kind for event in sorted(first.events, key=lambda e: e.start_s) if event.rank == i]
        assert kinds.index("forward") < kinds.index("backward") < kinds.index("update")
    assert all(event.end_s >= event.start_s for event in first.events)
    assert first.n_bytes == sum(p.numel() for p in __import__("d2lite").lenet_params()) * 4


def test_tested_images_come_with_each_recorded_step_and_follow_the_network(monkeypatch):
    monkeypatch.setattr("d2lite.profiling.watched_training._EVERY_S", 0.0)
    run, steps, tested = watched(2)
    assert len(tested) == len(steps) == len(run.losses)
    assert all(len(t.images) == len(t.labels) == len(t.predicted) == 8 for t in tested)
    assert tested[0].images.dtype == torch.uint8 and tested[0].images.shape[1:] == (28, 28)
    assert len({tuple(t.predicted.tolist()) for t in tested}) > 1


def test_without_a_listener_nothing_is_recorded(monkeypatch):
    monkeypatch.setattr("d2lite.profiling.watched_training.record_train_batch", None)  # a call would fail
    assert train_watched(2, **SETTINGS).status == "finished"
