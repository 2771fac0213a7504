import json
import math

import pytest
import torch

from d2lite.data.fashion_mnist import BatchIterator
from d2lite.devices import describe
from d2lite.events import Diverged
from d2lite.training.run import Run, as_json

CPU = torch.device("cpu")


def begin(n=100, batch_size=10, k=2, lr=0.1, num_epochs=3):
    train_iter = BatchIterator(torch.zeros(n, 1, 1, 1), torch.zeros(n), batch_size, "toy", seed=0)
    return Run.begin([CPU] * k, train_iter, lr, num_epochs, seed=0)


def test_a_run_keeps_what_it_is_given_and_derives_the_rest():
    run = begin()
    assert math.isnan(run.accuracy) and run.status == "running"
    for seconds, accuracy in [(2.0, 0.5), (9.0, 0.6), (4.0, 0.7)]:
        run.add_loss(torch.tensor(1.5))
        run.add_epoch(seconds, accuracy)
    assert run.finish() is run and run.status == "finished"
    assert (run.losses, run.accuracy) == ([1.5] * 3, 0.7)
    assert (run.seconds_per_epoch, run.examples_per_s) == (4.0, 25.0)
    assert run.legend == "k=2 · lr 0.1 · batch 10"
    assert "test accuracy 0.700, 4.00 s/epoch, 25 examples/s (2 replicas" in repr(run)
    (saved,) = json.loads(json.dumps(as_json([run])))["runs"]
    assert saved["devices"] == describe([CPU] * 2) and saved["dataset"] == "toy"
    assert saved["settings"] == {"num_gpus": 2, "batch_size": 10, "lr": 0.1, "num_epochs": 3, "seed": 0}
    assert saved["versions"]["torch"] == torch.__version__


@pytest.mark.parametrize("loss", [math.nan, math.inf, torch.tensor(-math.inf)])
def test_a_run_that_diverges_says_where_and_keeps_its_curve(loss):
    run = begin(lr=5)
    run.add_loss(2.0)
    with pytest.raises(Diverged, match=r"diverged at step 2, lr 5: the loss is .*ten times smaller") as caught:
        run.add_loss(loss)
    assert (caught.value.step, caught.value.lr, caught.value.run) == (2, 5, run)
    assert run.losses[0] == 2.0 and run.status == "diverged at step 2, lr 5"


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"lr": 0}, ValueError, "lr: expected a finite number above 0, got 0"),
        ({"lr": math.nan}, ValueError, "lr: expected"),
        ({"lr": "0.1"}, TypeError, "lr: expected"),
        ({"num_epochs": 0}, ValueError, "num_epochs: expected a positive whole number, got 0"),
        ({"n": 101}, ValueError, r"at least 2 examples, one per device, got a minibatch of 1 \(101 examples"),
        ({"batch_size": 1}, ValueError, "batch_size 1: expected every minibatch to hold at least 2"),
    ],
)
def test_begin_refuses_before_anything_is_computed(settings, error, message):
    with pytest.raises(error, match=message):
        begin(**settings)
