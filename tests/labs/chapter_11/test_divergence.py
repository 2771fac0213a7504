"""The first tensor that differs: its step, operation, replica, line, and whether it is rounding."""

import math

import pytest
import torch

from d2lite import lenet_params, replicate, train_batch, try_gpus
from d2lite.labs.chapter_11 import compare_replicas, find_divergence, record_steps
from tests.labs.chapter_11.test_write_recorder import batches


def run(step=train_batch, k=2, make=replicate, steps=3, n=5, dtype=torch.float64, **given):
    devices = try_gpus(k)
    device_params = make([p.to(dtype) for p in lenet_params()], devices)
    return record_steps(step, batches(steps, n, dtype), device_params, devices, 0.1, **given)


def at_step(number, change):
    """Return a step that is right but for the given one, in which change(device_params) comes after it."""
    state = {"step": 0}

    def step(X, y, device_params, devices, lr):
        state["step"] += 1
        train_batch(X, y, device_params, devices, lr)
        if state["step"] == number:
            with torch.no_grad():
                change(device_params)

    return step


def test_equal_runs_are_equal_bit_for_bit():
    found = find_divergence(run(), run())
    assert found.first is None and found.first_bits is None and not found.kept
    assert str(found) == "3 steps: no difference, bit for bit."
    assert found.gradients == found.weights == [[0.0, 0.0]] * 3


@pytest.mark.parametrize("k", [2, 3])
def test_one_device_and_k_differ_by_rounding_alone(k):
    found = find_divergence(run(k=1), run(k=k))
    assert found.first is None and found.first_bits.is_rounding and found.first_bits.write.operation == "message"
    assert "no difference but rounding" in str(found) and max(map(max, found.weights)) < 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_weight_that_is_changed_once_is_found_there(rank, dtype):
    def change(device_params):
        device_params[rank][5][3] += 0.01

    found = find_divergence(run(k=1, steps=4, dtype=dtype), run(at_step(3, change), steps=4, dtype=dtype))
    first = found.first
    assert (first.step, first.write.rank, first.write.name) == (3, rank, "linear1.bias")
    assert first.write.operation == "update" and first.write.code == "device_params[rank][5][3] += 0.01"
    assert not first.is_rounding and sorted(found.kept) == [2, 3, 4]
    assert f"step 3, after the update: the weight of linear1.bias on replica {rank} differs by" in str(found)
    assert torch.equal(((first.write.tensor - first.one).abs() > 5e-3).cpu(), torch.arange(128) == 3)


@pytest.mark.parametrize(("number", "is_rounding"), [(1, False), (2, True)])
def test_the_first_step_has_a_smaller_bound_since_its_weights_are_still_equal(number, is_rounding):
    broken = run(at_step(number, lambda dp: dp[0][5].mul_(1.0003)), k=1, steps=2, dtype=torch.float32)
    found = find_divergence(run(k=1, steps=2, dtype=torch.float32), broken)
    assert (found.first_bits.step, found.first_bits.is_rounding) == (number, is_rounding)
    assert found.first_bits.difference == pytest.approx(3e-4, rel=0.01)


def test_replicas_of_one_run_are_compared_with_the_first():
    found = compare_replicas(run(at_step(2, lambda device_params: device_params[1][0].mul_(2)), steps=3))
    assert (found.first.step, found.first.write.rank, found.first.write.name) == (2, 1, "conv1.weight")
    assert found.weights[0] == [0.0, 0.0] and found.weights[1][1] > 0.1
    assert compare_replicas(run()).first_bits is None


def stored_in_16_bits(rank, dtype, begin=1):
    """A step in which one replica keeps its weights in a type of 16 bits from step `begin` on."""
    state = {"step": 0}

    def step(X, y, device_params, devices, lr):
        state["step"] += 1
        train_batch(X, y, device_params, devices, lr)
        if state["step"] >= begin:
            with torch.no_grad():
                for param in device_params[rank]:
                    param.copy_(param.to(dtype))

    return step


@pytest.mark.parametrize(
    ("k", "rank", "begin"), [(2, 1, 1), (2, 0, 1), (3, 1, 2), (1, 0, 1), (1, 0, 3)], ids=lambda value: str(value)
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_replica_that_stores_its_weights_in_16_bits_is_found_at_once(dtype, k, rank, begin):
    broken = run(stored_in_16_bits(rank, dtype, begin), k=k, steps=4, dtype=torch.float32)
    first = find_divergence(run(k=1, steps=4, dtype=torch.float32), broken).first
    assert (first.step, first.write.operation, first.write.rank) == (begin, "update", rank)
    assert dtype == torch.bfloat16 or first.difference < 1e-3


@pytest.mark.parametrize("rank", [0, 1])
def test_replicas_of_one_run_are_as_close_as_rounding_leaves_replicas(rank):
    found = compare_replicas(run(stored_in_16_bits(rank, torch.float16, 2), dtype=torch.float32))
    assert (found.first.step, found.first.write.operation, found.first.write.rank) == (2, "update", 1)


def test_weights_that_have_16_bits_in_both_runs_are_rounding():
    both = [run(stored_in_16_bits(0, torch.float16), k=1, steps=2, dtype=torch.float32, n=n) for n in (5, 5)]
    assert find_divergence(*both).first is None


def test_a_replica_that_is_not_written_to_is_found():
    def two_of_three(X, y, device_params, devices, lr):
        train_batch(X, y, device_params[:2], devices[:2], lr)

    found = find_divergence(run(k=1), run(two_of_three, k=3))
    assert found.first.step == 1 and found.first.write.rank == 2 and math.isinf(found.first.difference)
    assert "on replica 2 is not written in this step" in str(found)


def test_nan_is_a_difference():
    found = find_divergence(run(), run(at_step(2, lambda device_params: device_params[0][7].fill_(float("nan")))))
    assert found.first.step == 2 and found.first.write.name == "linear2.bias" and math.isinf(found.first.difference)


def test_without_values_the_first_difference_is_still_named():
    other = run(at_step(2, lambda device_params: device_params[1][2].mul_(2)), tensors=False)
    found = find_divergence(run(tensors=False), other)
    assert (found.first.step, found.first.write.rank, found.first.write.name) == (2, 1, "conv2.weight")
    assert math.isnan(found.first.difference) and "differs (more than rounding)" in str(found.first)


def test_twenty_steps_of_lenet_keep_less_than_50_mb():
    broken = run(at_step(10, lambda device_params: device_params[1][2].mul_(2)), steps=20, n=2, dtype=torch.float32)
    found = find_divergence(run(k=1, steps=20, n=2, dtype=torch.float32), broken)
    assert len(found.weights) == 20 and found.first.step == 10
    assert found.most_bytes < 50e6
    assert sum(record.n_bytes for pair in found.kept.values() for record in pair) <= found.most_bytes


def test_no_steps_and_other_networks_are_refused():
    with pytest.raises(ValueError, match="expected at least one step of both runs, got none"):
        find_divergence([], run())
    small = record_steps(
        lambda X, y, dp, devices, lr: [p.data.mul_(0.5) for p in dp[0]], batches(1), [[torch.ones(2)]], try_gpus(1), 0.1
    )
    with pytest.raises(ValueError, match="expected two runs of one network"):
        find_divergence(small, run())
