from types import SimpleNamespace

import pytest
import torch
from torch import nn

from d2lite import meters
from d2lite.models import LeNet, SimpleCNN, resnet18
from d2lite.training.concise import train_concise
from d2lite.training.data_parallel import DataParallel
from d2lite.training.evaluation import evaluate_accuracy, evaluate_accuracy_gpus
from d2lite.training.scatter import split_batch

CPU = torch.device("cpu")


def test_train_concise_gives_the_same_losses_for_any_k():
    net = SimpleCNN()
    runs = [train_concise(net, k, 64, 0.001, num_epochs=1, num_examples=320, optim=torch.optim.Adam) for k in (1, 3)]
    assert runs[1].losses == pytest.approx(runs[0].losses, rel=1e-4)
    assert runs[1].accuracies == pytest.approx(runs[0].accuracies, abs=0.02)
    assert runs[1].settings["num_gpus"] == 3 and runs[1].status == "finished"


def test_train_concise_starts_anew_so_that_two_runs_are_equal():
    net = resnet18(10, width=4)
    runs = [train_concise(net, 2, 32, 0.05, num_epochs=1, num_examples=64).losses for _ in range(2)]
    assert runs[0] == runs[1]


class Slow(nn.Module):
    """A linear network whose forward pass takes a second of `clock` in training, and a thousand in evaluation."""

    def __init__(self, clock):
        super().__init__()
        self.layer, self.clock = nn.Linear(28 * 28, 10), clock

    def reset_parameters(self):
        self.layer.reset_parameters()

    def forward(self, X):
        self.clock.now += 1 if self.training else 1000
        return self.layer(X.flatten(1))


def test_the_seconds_of_an_epoch_are_those_of_training_alone(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(meters, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    run = train_concise(Slow(clock), 1, 64, 0.05, num_epochs=2, num_examples=192)
    assert run.seconds == [3.0, 3.0] and clock.now > 2000  # 3 steps an epoch; the test set was read twice


def test_a_network_that_comes_in_evaluation_mode_is_trained_in_training_mode():
    class Watched(nn.Linear):
        def forward(self, X):
            if torch.is_grad_enabled():
                modes.append(self.training)
            return super().forward(X.flatten(1))

    modes, net = [], Watched(28 * 28, 10)
    train_concise(net.eval(), 1, 64, 0.05, num_epochs=2, num_examples=128)
    assert modes == [True] * 4


@pytest.mark.parametrize("sizes", [(7, 5), (12,), (10, 2), (11, 1)])
def test_evaluate_accuracy_gpus_is_exact(batch, sizes):
    X, y = batch(12)
    data = list(zip(X.split(sizes), y.split(sizes), strict=True))
    module = SimpleCNN()
    net = DataParallel(module, [CPU] * 3).train()
    assert evaluate_accuracy_gpus(net, data) == evaluate_accuracy(module, data)
    assert net.training


def test_evaluation_brings_every_mode_back(batch):
    net = DataParallel(resnet18(10, width=4), [CPU] * 2).train()
    net.module[1].eval()  # a frozen layer
    evaluate_accuracy_gpus(net, [batch(4)])
    evaluate_accuracy(net.module, [batch(4)])
    assert net.training and net.module[0].training and not net.module[1].training


def test_evaluate_accuracy_gpus_uses_batchnorm_in_evaluation_mode_and_split_f(batch):
    X, y = batch(10)
    net = DataParallel(resnet18(10, width=4), [CPU] * 2)
    calls = []

    def split_f(X, y, devices):
        calls.append(len(devices))
        return split_batch(X, y, devices)

    mean = net.module[1].running_mean.clone()
    assert evaluate_accuracy_gpus(net, [(X, y)], split_f) == evaluate_accuracy(net.module, [(X, y)])
    assert calls == [2] and torch.equal(net.module[1].running_mean, mean)


def test_evaluate_accuracy_gpus_refuses():
    with pytest.raises(TypeError, match="net: expected a DataParallel, got LeNet"):
        evaluate_accuracy_gpus(LeNet(), [])
    with pytest.raises(ValueError, match="data_iter: expected at least one minibatch"):
        evaluate_accuracy_gpus(DataParallel(LeNet(), [CPU]), [])
