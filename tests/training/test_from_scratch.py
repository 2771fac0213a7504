from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from d2lite import meters
from d2lite.models import LeNet, lenet, lenet_params
from d2lite.run_events import Diverged, Stopped, listening
from d2lite.training import from_scratch
from d2lite.training.evaluation import evaluate_accuracy
from d2lite.training.from_scratch import forward_backward, sgd_step, train, train_batch
from d2lite.training.replicate import replicate

CPU = torch.device("cpu")
# relative to the size of the numbers; float32 rounds at 1.2e-7 and its sums are taken in another order
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4}


def minibatches(sizes, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        (
            torch.rand(n, 1, 28, 28, generator=generator, dtype=dtype),
            torch.randint(0, 10, (n,), generator=generator),
        )
        for n in sizes
    ]


def train_by_autograd(batches, params, lr):
    """The oracle: one device, torch's own mean loss and SGD."""
    params = [p.clone().requires_grad_() for p in params]
    optimizer = torch.optim.SGD(params, lr)
    losses = []
    for X, y in batches:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(lenet(X, params), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return params, losses


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@settings(max_examples=12)
@given(
    k=st.integers(1, 8),
    extra=st.lists(st.integers(0, 13), min_size=1, max_size=4),
    seed=st.integers(0, 9),
)
def test_k_devices_equal_one(dtype, k, extra, seed):
    batches = minibatches([k + e for e in extra], dtype, seed)
    params = [p.to(dtype) for p in lenet_params(seed)]
    expected, expected_losses = train_by_autograd(batches, params, lr=0.1)
    device_params = replicate(params, [CPU] * k)
    losses = [train_batch(X, y, device_params, [CPU] * k, lr=0.1).item() for X, y in batches]
    tolerance = TOLERANCE[dtype]
    assert losses == pytest.approx(expected_losses, rel=tolerance)
    for replica in device_params:
        assert all(torch.equal(p, q) for p, q in zip(replica, device_params[0], strict=True))
        for p, q in zip(replica, expected, strict=True):
            torch.testing.assert_close(p, q, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
def test_twenty_steps_on_many_devices_equal_one():
    batches = minibatches([23] * 20, torch.float64)
    params = [p.double() for p in lenet_params()]
    expected, _ = train_by_autograd(batches, params, lr=0.1)
    for k in (2, 3, 8):
        device_params = replicate(params, [CPU] * k)
        for X, y in batches:
            train_batch(X, y, device_params, [CPU] * k, lr=0.1)
        for p, q in zip(device_params[-1], expected, strict=True):
            torch.testing.assert_close(p, q, rtol=0, atol=1e-9)


def test_aliased_replicas_are_caught(batch):
    X, y = batch(8)
    one = [p.requires_grad_() for p in lenet_params()]
    with pytest.raises(ValueError, match="shares its memory"):
        train_batch(X, y, [one, [p.to("cpu") for p in one]], [CPU] * 2, lr=0.1)


def test_forward_backward_forgets_older_gradients(batch):
    X, y = batch(4)
    (params,) = replicate(lenet_params(), [CPU])
    forward_backward(X, y, params)
    once = params[0].grad.clone()
    forward_backward(X, y, params)
    assert torch.equal(params[0].grad, once)


def test_sgd_divides_by_the_batch():
    param = torch.tensor([1.0], requires_grad=True)
    param.grad = torch.tensor([8.0])
    sgd_step([param], lr=0.5, batch_size=4)
    assert param.tolist() == [0.0] and param.requires_grad


class Points:
    def __init__(self):
        self.points = []

    def add(self, x, y):
        self.points.append((x, y))


def test_sgd_without_examples_changes_nothing():
    param = torch.tensor([1.0])
    param.grad = torch.tensor([4.0])
    with pytest.raises(ZeroDivisionError):
        sgd_step([param], lr=0.1, batch_size=0)
    assert param.item() == 1


def test_train_gives_a_whole_record_and_the_same_curve_for_any_k():
    first = train(1, 64, 0.05, num_epochs=2, num_examples=320)
    animator = Points()
    run = train(3, 64, 0.05, num_epochs=2, num_examples=320, animator=animator)
    assert run.status == "finished" and run.settings["num_gpus"] == 3
    assert len(run.losses) == 10 and len(run.seconds) == 2 and min(run.seconds) > 0
    assert animator.points == [(1, run.accuracies[0]), (2, run.accuracies[1])]
    assert run.losses == pytest.approx(first.losses, rel=1e-3)


def test_the_seconds_of_an_epoch_are_those_of_training_alone(monkeypatch):
    clock = SimpleNamespace(now=0.0)

    def slow_lenet(X, params):
        clock.now += 1 if torch.is_grad_enabled() else 1000  # evaluation needs no gradient
        return lenet(X, params)

    monkeypatch.setattr(meters, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    monkeypatch.setattr(from_scratch, "lenet", slow_lenet)
    run = train(1, 64, 0.05, num_epochs=2, num_examples=192)
    assert run.seconds == [3.0, 3.0] and clock.now > 2000  # 3 steps an epoch; the test set was read twice


def test_train_with_another_seed_is_another_run():
    runs = [train(1, 64, 0.05, num_epochs=1, num_examples=128, seed=s).losses for s in (0, 1, 0)]
    assert runs[0] == runs[2] != runs[1]


def test_train_that_diverges_says_so_and_stops():
    with pytest.raises(Diverged, match="lr 1e[+]06") as caught:
        train(2, 32, 1e6, num_epochs=5, num_examples=320)
    assert len(caught.value.run.losses) == caught.value.step < 50


def test_stop_ends_training_within_a_step():
    steps = []

    def listener(event, **facts):
        if event == "minibatch":
            steps.append(facts["step"])
            if len(steps) == 3:
                raise Stopped

    with pytest.raises(Stopped), listening(listener):
        train(2, 32, 0.1, num_epochs=5, num_examples=320)
    assert steps == [0, 1, 2]


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"num_gpus": 0}, ValueError, "num_gpus"),
        ({"num_gpus": 2.0}, TypeError, "num_gpus"),
        ({"batch_size": 0}, ValueError, "batch_size: expected a positive whole number, got 0"),
        ({"batch_size": 25.6}, TypeError, "batch_size: expected a positive whole number, got 25.6"),
        ({"lr": -1}, ValueError, "lr"),
        ({"num_epochs": 0}, ValueError, "num_epochs"),
        ({"num_examples": 0}, ValueError, "num_examples: expected a whole number from 1 to 60000, got 0"),
        ({"num_examples": 1, "num_gpus": 2}, ValueError, "at least 2 examples, one per device"),
    ],
)
def test_train_refuses(settings, error, message):
    with pytest.raises(error, match=message):
        train(**{"num_gpus": 1, "batch_size": 8, "lr": 0.1, "num_epochs": 1, "num_examples": 16} | settings)


def test_evaluate_accuracy_is_exact_and_brings_the_mode_back(batch):
    X, y = batch(10)
    net = LeNet().train()
    expected = (net(X).argmax(1) == y).float().mean().item()
    uneven = [(X[:7], y[:7]), (X[7:], y[7:])]
    assert evaluate_accuracy(net, uneven) == pytest.approx(expected)
    assert net.training
    assert evaluate_accuracy(lambda X: torch.nn.functional.one_hot(y, 10), [(X, y)]) == 1.0
    with pytest.raises(ValueError, match="data_iter: expected at least one minibatch"):
        evaluate_accuracy(net, [])
