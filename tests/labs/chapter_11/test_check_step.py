"""`check_step` passes right code of any style, names bugs in code that is not the kit's, and never guesses."""

import contextlib
import time

import pytest
import torch
import torch.nn.functional as F

from d2lite import Workers, all_reduce, lenet, replicate, split_batch, train_batch
from d2lite.exercises import EXHIBITS
from d2lite.exercises.learner_pool import quiet_pool
from d2lite.labs.chapter_03.d2l import sgd
from d2lite.labs.chapter_11 import check_step
from d2lite.labs.chapter_11.bug_formulas import KNOWN_BUGS
from d2lite.labs.chapter_11.check_step import judge_step
from tests.by_value import by_value


def d2l_loop(X, y, device_params, devices, lr):
    """d2l's own: losses that are summed, an all-reduce by hand, and an sgd that sets gradients to zero."""
    X_shards, y_shards = split_batch(X, y, devices)
    losses = [
        F.cross_entropy(lenet(X, params), y, reduction="none").sum()
        for X, y, params in zip(X_shards, y_shards, device_params, strict=True)
    ]
    for loss in losses:
        loss.backward()
    with torch.no_grad():
        for i in range(len(device_params[0])):
            data = [params[i].grad for params in device_params]
            for j in range(1, len(data)):
                data[0][:] += data[j].to(data[0].device)
            for j in range(1, len(data)):
                data[j][:] = data[0].to(data[j].device)
    for params in device_params:
        sgd(params, lr, X.shape[0])


def like_ddp(X, y, device_params, devices, lr):
    """Each rank: its mean loss, weighted, and gradients that are averaged; torch's optimizer."""
    k, shards = len(devices), zip(*split_batch(X, y, devices), strict=True)
    optimizers = [torch.optim.SGD(params, lr) for params in device_params]
    for (X_shard, y_shard), params, optimizer in zip(shards, device_params, optimizers, strict=True):
        optimizer.zero_grad()
        (F.cross_entropy(lenet(X_shard, params), y_shard) * len(y_shard) * k / len(y)).backward()
    for i in range(len(device_params[0])):
        all_reduce([params[i].grad for params in device_params], op="mean", algorithm="ring")
    for optimizer in optimizers:
        optimizer.step()


def like_horovod(X, y, device_params, devices, lr):
    """Gradients in one flat buffer, averaged, and written back; weights are set by the update."""
    k, X_shards, y_shards = len(devices), X.tensor_split(len(devices)), y.tensor_split(len(devices))
    buffers = []
    for X_shard, y_shard, params in zip(X_shards, y_shards, device_params, strict=True):
        loss = F.cross_entropy(lenet(X_shard, params), y_shard, reduction="sum") * (k / len(X))
        buffers.append(torch.cat([grad.flatten() for grad in torch.autograd.grad(loss, params)]))
    average = sum(buffers) / k
    for params in device_params:
        parts = average.split([p.numel() for p in params])
        for param, part in zip(params, parts, strict=True):
            param.data -= lr * part.view_as(param)


def of_a_student(X, y, device_params, devices, lr):
    """Slow, with a loop over examples, and the gradient of the first replica copied to all others."""
    grads = [torch.zeros_like(p) for p in device_params[0]]
    for i in range(len(X)):
        rank = i * len(devices) // len(X)
        loss = F.nll_loss(F.log_softmax(lenet(X[i : i + 1], device_params[rank]), 1), y[i : i + 1])
        for total, grad in zip(grads, torch.autograd.grad(loss, device_params[rank]), strict=True):
            total += grad / len(X)
    for params in device_params:
        for j in range(len(params)):
            params[j] = (params[j] - lr * grads[j]).detach().requires_grad_()


STYLES = [train_batch, d2l_loop, like_ddp, like_horovod, of_a_student]


@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.__name__)
def test_right_code_of_any_style_passes(style):
    verdict = judge_step(style)
    assert verdict.passed and verdict.name == "equal", verdict


@pytest.mark.parametrize("name", EXHIBITS)
def test_every_exhibit_is_named(name):
    exhibit = EXHIBITS[name]
    verdict = judge_step(exhibit.train_batch, exhibit.replicate)
    assert not verdict.passed and verdict.name == (exhibit.found_as or exhibit.name), verdict


def step_of(loss, op="sum", divide=lambda X: len(X), zero=True, cut=split_batch, reduce=all_reduce):
    """A step of a learner, to be changed in one place."""

    def step(X, y, device_params, devices, lr):
        shards = list(zip(*cut(X, y, devices), device_params, strict=False))
        for X_shard, y_shard, params in shards:
            if zero:
                for param in params:
                    param.grad = None
            loss(lenet(X_shard, params), y_shard, len(devices), len(X)).backward()
        for i in range(len(device_params[0])):
            if reduce is not None:
                reduce([params[i].grad for _, _, params in shards], op)
        with torch.no_grad():
            for _, _, params in shards:
                for param in params:
                    param -= lr * param.grad / divide(X)

    return step


def summed(y_hat, y, k, n):
    return F.cross_entropy(y_hat, y, reduction="sum")


def mean(y_hat, y, k, n):
    return F.cross_entropy(y_hat, y)


def reduced_to_first(data, op):
    data[0] += sum(data[1:])


def rebound(data, op):
    total = sum(data)
    for j in range(len(data)):
        data[j] = total


OWN_BUGS = {
    "sum for mean": [step_of(mean, divide=lambda X: 1)],
    "k times too far": [step_of(lambda y_hat, y, k, n: k * summed(y_hat, y, k, n))],
    "lr times k twice": [step_of(lambda y_hat, y, k, n: k * k * summed(y_hat, y, k, n))],
    "mean for sum": [step_of(summed, "mean")],
    "loss divided by the local batch": [
        step_of(mean, "mean", lambda X: 1),
        step_of(lambda y_hat, y, k, n: mean(y_hat, y, k, n) / k, divide=lambda X: 1),
    ],
    "no all-reduce": [
        step_of(summed, reduce=None), step_of(mean, reduce=None, divide=lambda X: 1), step_of(summed, reduce=rebound),
    ],
    "rebinding all-reduce": [step_of(summed, reduce=reduced_to_first)],
    "forgotten zero_grad": [
        step_of(summed, zero=False),
        step_of(lambda y_hat, y, k, n: mean(y_hat, y, k, n) * len(y) / n * k, "mean", lambda X: 1, zero=False),
    ],
    "chunk loses a device": [
        step_of(summed, cut=lambda X, y, devices: (X.chunk(len(devices)), y.chunk(len(devices))))
    ],
    "examples left over are dropped": [
        step_of(summed, cut=lambda X, y, d: (X.split(len(X) // len(d))[: len(d)], y.split(len(X) // len(d))[: len(d)]))
    ],
    "no update": [step_of(summed, divide=lambda X: float("inf"))],
}  # fmt: skip


@pytest.mark.parametrize(("name", "i"), [(name, i) for name, steps in OWN_BUGS.items() for i in range(len(steps))])
def test_bugs_in_code_of_ones_own_are_named(name, i):
    assert judge_step(OWN_BUGS[name][i]).name == name


UNKNOWN_STEPS = {
    "momentum of 0.9 as a factor": step_of(lambda y_hat, y, k, n: 0.9 * summed(y_hat, y, k, n)),
    "weight decay": lambda X, y, dp, d, lr: (decay(dp), train_batch(X, y, dp, d, lr)),
    "ascent": step_of(lambda y_hat, y, k, n: -summed(y_hat, y, k, n)),
    "another loss": step_of(lambda y_hat, y, k, n: F.multi_margin_loss(y_hat, y, reduction="sum")),
    "another lr": lambda X, y, dp, d, lr: train_batch(X, y, dp, d, 0.05),
    "first parameter never sent": step_of(summed, reduce=lambda data, op: all_reduce(data) if data[0].dim() < 4 else 0),
    "labels turned": lambda X, y, dp, d, lr: train_batch(X, y.roll(1), dp, d, lr),
    "nan": step_of(lambda y_hat, y, k, n: summed(y_hat, y, k, n) * float("nan")),
}


def decay(device_params):
    with torch.no_grad():
        for params in device_params:
            for param in params:
                param *= 0.999


@pytest.mark.parametrize("name", UNKNOWN_STEPS)
def test_what_it_does_not_know_it_does_not_name(name):
    verdict = judge_step(UNKNOWN_STEPS[name])
    assert not verdict.passed and verdict.name == "different, cause unknown", verdict
    assert "times as far as one device" in verdict.words


def scaled_in(places, factor=0.5):
    """A step whose gradients of some parameters are wrong by a factor."""

    def step(X, y, device_params, devices, lr):
        before = [[p.detach().clone() for p in params] for params in device_params]
        train_batch(X, y, device_params, devices, lr)
        with torch.no_grad():
            for params, old in zip(device_params, before, strict=True):
                for i in places:
                    params[i].copy_(old[i] + factor * (params[i] - old[i]))

    return step


TENSORS = {
    "All 8 tensors differ.": (0, 1, 2, 3, 4, 5, 6, 7),
    "Only params[7] differs, the last bias.": (7,),
    "Only params[0] differs, the first weight.": (0,),
    "Only params[3] differs, a bias.": (3,),
    "All biases differ, and nothing else.": (1, 3, 5, 7),
    "All weights differ, and nothing else.": (0, 2, 4, 6),
    "2 of 8 tensors differ: params[0], params[1].": (0, 1),
}


@pytest.mark.parametrize("words", TENSORS)
def test_the_tensors_that_differ_are_named(words):
    verdict = judge_step(scaled_in(TENSORS[words]))
    assert verdict.name == "different, cause unknown" and words in verdict.words, verdict


def test_the_factor_is_that_of_one_step():
    verdict = judge_step(lambda X, y, dp, d, lr: train_batch(X, y, dp, d, 0.9 * lr))
    assert "one step differs: 8 examples on 2 devices, 1 step, lr 0.05." in verdict.words
    assert "moved 0.9 times as far as one device, in the same direction." in verdict.words
    assert "in another direction" in judge_step(scaled_in((7,))).words
    assert "in another direction" in judge_step(UNKNOWN_STEPS["ascent"]).words


def test_without_a_wrong_first_step_the_first_case_is_named():
    seen = [None]

    def second_step_is_shorter(X, y, device_params, devices, lr):
        is_first = device_params is not seen[-1]
        seen.append(device_params)
        train_batch(X, y, device_params, devices, lr * (1 if is_first else 0.9))

    verdict = judge_step(second_step_is_shorter)
    assert "the first case that differs: 10 examples on 1 device, 2 steps, lr 0.05." in verdict.words


def test_random_steps_are_told_apart():
    def dropout(X, y, device_params, devices, lr):
        train_batch(F.dropout(X, 0.1), y, device_params, devices, lr)

    verdict = judge_step(dropout)
    assert verdict.name == "different, cause unknown" and "draws random numbers" in verdict.words

    def seeded(X, y, device_params, devices, lr):
        masks = [torch.rand(len(part), 1, 28, 28, generator=torch.Generator().manual_seed(5)) < 0.8
                 for part in X.tensor_split(len(devices))]  # fmt: skip
        train_batch(X * torch.cat(masks), y, device_params, devices, lr)

    assert judge_step(seeded).name == "same random numbers on each replica"


def test_float32_inside_passes_and_is_said():
    verdict = judge_step(step_of(lambda y_hat, y, k, n: summed(y_hat.float(), y, k, n)))
    assert verdict.passed and "something is in float32" in verdict.words


def test_an_error_is_shown_with_its_case():
    def strict(X, y, device_params, devices, lr):
        list(zip(X.chunk(len(devices)), device_params, strict=True))
        train_batch(X, y, device_params, devices, lr)

    verdict = judge_step(strict)
    assert verdict.name == "error" and "ValueError" in verdict.words and "6 examples on 4 devices" in verdict.words


def test_replicas_of_ones_own_are_looked_at_first():
    verdict = judge_step(train_batch, lambda params, devices: [params] * len(devices))
    assert verdict.name == "error"  # the kit's all_reduce refuses
    assert judge_step(d2l_loop, lambda params, devices: [[p.requires_grad_() for p in params]] * len(devices)).name == (
        "aliased replicas"
    )
    assert judge_step(train_batch, lambda params, devices: replicate(params, devices)[:1]).name == "error"


def test_no_two_bugs_of_other_names_are_the_same_by_definition():
    assert len({bug.name for bug in KNOWN_BUGS}) >= 11
    assert {exhibit.found_as or exhibit.name for exhibit in EXHIBITS.values()} <= {bug.name for bug in KNOWN_BUGS} | {
        "update before all-reduce", "same random numbers on each replica", "aliased replicas",
        "different initial weights",
    }  # fmt: skip


@pytest.mark.parametrize("given", [(None,), (train_batch, 3)])
def test_what_is_no_function_is_refused(given):
    with pytest.raises(TypeError, match="expected a function, got"):
        check_step(*given)
    with pytest.raises(ValueError, match="limit_s: expected a finite number above 0"):
        check_step(train_batch, limit_s=0)


@pytest.mark.slow
def test_it_runs_in_a_process_of_its_own_and_ends_in_bounded_time(capsys):
    def endless(X, y, device_params, devices, lr):
        while True:
            time.sleep(0.01)

    def ends_its_process(X, y, device_params, devices, lr):
        import os

        os._exit(3)

    with Workers(1) as workers:
        assert check_step(by_value(endless), workers=workers, limit_s=1).name == "did not end"
        assert "its process ended" in check_step(by_value(ends_its_process), workers=workers).words
        assert check_step(by_value(of_a_student), workers=workers).passed  # the pool has started again
    assert check_step(train_batch).passed
    assert "equal: 6 of 6 cases" in capsys.readouterr().out


def ddp_step_of_replica(params, X, y, lr):
    """Run in a rank: one step of torch's DistributedDataParallel, from and to a list of parameters."""
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.params = nn.ParameterList([p.detach().clone() for p in params[dist.get_rank()]])

        def forward(self, X):
            return lenet(X, list(self.params))

    net = DistributedDataParallel(Net())
    k, rank = dist.get_world_size(), dist.get_rank()
    X_shard, y_shard = X.tensor_split(k)[rank], y.tensor_split(k)[rank]
    (F.cross_entropy(net(X_shard), y_shard, reduction="sum") * k / len(X)).backward()
    torch.optim.SGD(net.parameters(), lr).step()
    return [p.detach() for p in net.module.params]


@pytest.mark.slow
def test_real_ddp_on_ranks_passes():
    with contextlib.ExitStack() as stack:
        pools = {}

        def on_ranks(X, y, device_params, devices, lr):
            k = len(devices)
            if k not in pools:
                pools[k] = stack.enter_context(quiet_pool(k))
            given = [[p.detach() for p in params] for params in device_params]
            results = pools[k].run(by_value(ddp_step_of_replica), given, X, y, lr)
            for params, after in zip(device_params, results, strict=True):
                for param, value in zip(params, after, strict=True):
                    param.data.copy_(value)

        assert judge_step(on_ranks).passed
