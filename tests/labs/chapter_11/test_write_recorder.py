"""What a step writes is seen, with the replica and the line, in whichever way it is written."""

import sys
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from d2lite import all_reduce, lenet, lenet_params, num_gpus, replicate, split_batch, train_batch, try_gpus
from d2lite.labs.chapter_11 import record_steps
from d2lite.labs.chapter_11.write_recorder import digest


def batches(steps=2, n=5, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.rand(n, 1, 28, 28, generator=generator, dtype=dtype), torch.randint(0, 10, (n,), generator=generator))
        for _ in range(steps)
    ]


def recorded(step, k=2, make=replicate, **given):
    devices = try_gpus(k)
    return list(
        record_steps(step, batches(), make([p.double() for p in lenet_params()], devices), devices, 0.1, **given)
    )


def test_every_gradient_message_and_weight_of_each_replica_is_recorded_with_its_line():
    records = recorded(train_batch)
    assert [record.step for record in records] == [1, 2]
    for record in records:
        for operation, code in (
            ("backward", "losses = parallel_apply(forward_backward,"),
            ("message", "all_reduce([params[i].grad"),
            ("update", "parallel_apply(lambda params: sgd_step("),
        ):
            mine = [write for write in record.writes if write.operation == operation]
            assert {(write.rank, write.index) for write in mine} == {(r, i) for r in range(2) for i in range(8)}
            # replicas that share a GPU compute one after the other, so that lines of what they call are seen
            assert all(write.code.startswith(code) or num_gpus() == 1 for write in mine)
        assert {write.name for write in record.writes} >= {"conv1.weight", "linear2.bias"}


def test_the_last_gradient_and_weight_have_values_and_digests():
    devices = try_gpus(2)
    device_params = replicate([p.double() for p in lenet_params()], devices)
    *_, last = record_steps(train_batch, batches(), device_params, devices, 0.1)
    for (rank, i), write in last.last(("update",)).items():
        assert torch.equal(write.tensor, device_params[rank][i].detach())
        assert write.digest == digest(device_params[rank][i])
    for (rank, i), write in last.last(("backward", "message")).items():
        assert write.operation == "message" and torch.equal(write.tensor, device_params[rank][i].grad)
    assert all(write.tensor is None for write in last.writes if write.operation == "backward")


def test_recording_changes_nothing():
    devices, trained = try_gpus(2), {}
    for name in ("plain", "recorded"):
        device_params = replicate([p.double() for p in lenet_params()], devices)
        if name == "plain":
            for X, y in batches():
                train_batch(X, y, device_params, devices, 0.1)
        else:
            list(record_steps(train_batch, batches(), device_params, devices, 0.1))
        trained[name] = device_params[1]
    assert all(torch.equal(p, q) for p, q in zip(*trained.values(), strict=True))


def through_data(X, y, device_params, devices, lr):
    """Without .grad, and through .data, whose writes are not counted."""
    grads = [
        torch.autograd.grad(F.cross_entropy(lenet(X, params), y, reduction="sum"), params)
        for X, y, params in zip(*split_batch(X, y, devices), device_params, strict=True)
    ]
    for parts in zip(*grads, strict=True):
        all_reduce(parts)
    for params, own in zip(device_params, grads, strict=True):
        for param, grad in zip(params, own, strict=True):
            param.data -= lr / len(X) * grad


def sets_to_zero(X, y, device_params, devices, lr):
    for params in device_params:
        for param in params:
            if param.grad is not None:
                param.grad.zero_()
    train_batch(X, y, device_params, devices, lr)


def test_weights_that_no_counter_shows_are_found_at_the_end_of_the_step():
    for record in recorded(through_data):
        assert {write.operation for write in record.writes} == {"update"} and len(record.writes) == 16


def test_gradients_that_are_set_to_zero_first_are_not_taken_for_those_of_the_backward_pass():
    for record in recorded(sets_to_zero):
        first = [write for write in record.writes if write.operation == "backward"]
        assert all("train_batch(" in write.code for write in first)


def test_without_tensors_a_record_is_small_and_tells_the_same_values_apart():
    with_values, without = recorded(train_batch), recorded(train_batch, tensors=False)
    for one, other in zip(with_values, without, strict=True):
        assert replace(one, writes=tuple(replace(write, tensor=None) for write in one.writes)) == other
    assert without[0].n_bytes == 0 < with_values[0].n_bytes


def test_digests_differ_in_one_bit():
    one = torch.ones(1000)
    other = one.clone()
    other[-1] += 1.2e-7
    assert digest(one) == digest(one.clone()) != digest(other)
    assert digest(torch.ones(3, 3).bfloat16().t()) and digest(torch.zeros(0)) and digest(torch.tensor(1.0))


def test_an_error_of_the_step_comes_through_and_tracing_is_given_back():
    def fails(X, y, device_params, devices, lr):
        raise KeyError("mine")

    before = sys.gettrace()
    with pytest.raises(KeyError, match="mine"):
        recorded(fails)
    assert sys.gettrace() is before


def test_wrong_arguments_are_refused():
    with pytest.raises(TypeError, match="train_batch: expected"):
        recorded(3)
    with pytest.raises(ValueError, match="names: expected 8, one for each parameter of a device, got 1"):
        recorded(train_batch, names=["w"])
