"""`check_step` on steps that share out the update over devices, and on minibatches with labels that are left out."""

import pytest
import torch
import torch.nn.functional as F

from d2lite import all_reduce, lenet, split_batch, train_batch
from d2lite.labs.chapter_11 import check_step
from d2lite.labs.chapter_11.bug_formulas import KNOWN_BUGS, MASKED_BUGS, OWNERS
from d2lite.labs.chapter_11.check_step import judge_step
from d2lite.labs.chapter_11.step_case import CASES, MASKED_CASES

UNSURE = "different, cause unknown"


def shares(X, y, device_params, devices):
    """Compute the shares of the gradient; each device has one, in .grad."""
    for X_shard, y_shard, params in zip(*split_batch(X, y, devices), device_params, strict=True):
        for param in params:
            param.grad = None
        (F.cross_entropy(lenet(X_shard, params), y_shard, reduction="sum") / len(y)).backward()


def clip(tensors, most, norm):
    for tensor in tensors:
        tensor.mul_(min(1.0, most / norm))


def norm_of(tensors):
    return float(torch.stack([tensor.square().sum() for tensor in tensors]).sum().sqrt())


def in_parts(most=float("inf"), clips_all=False, gathers=True):
    """ZeRO by hand: each device updates an equal part of each flat tensor."""

    def step(X, y, device_params, devices, lr):
        k = len(devices)
        shares(X, y, device_params, devices)
        sums = [sum(params[i].grad for params in device_params).flatten() for i in range(len(device_params[0]))]
        parts = [[F.pad(total, (0, -len(total) % k)).chunk(k)[rank].clone() for total in sums] for rank in range(k)]
        for mine in parts:
            clip(mine, most, norm_of(sums if clips_all else mine))
        for i, total in enumerate(sums):
            for rank, params in enumerate(device_params):
                found = [parts[r][i] if gathers or r == rank else torch.zeros_like(parts[r][i]) for r in range(k)]
                params[i].data -= lr * torch.cat(found)[: len(total)].view_as(params[i])

    return step


def of_owners(most=float("inf"), clips_all=False, gathers=True):
    """ZeroRedundancyOptimizer's way: tensor i is updated by device i % k and copied to the others."""

    def step(X, y, device_params, devices, lr):
        k = len(devices)
        shares(X, y, device_params, devices)
        for i in range(len(device_params[0])):
            all_reduce([params[i].grad for params in device_params])
        grads = [param.grad for param in device_params[0]]
        for rank in range(k):
            mine = [i for i in range(len(grads)) if i % k == rank]
            norm = norm_of(grads if clips_all else [grads[i] for i in mine]) if mine else 0.0
            for i in mine:
                update = lr * grads[i] * min(1.0, most / norm)
                for params in device_params if gathers else [device_params[rank]]:
                    params[i].data -= update

    return step


def of_rows(most=float("inf"), clips_all=False, gathers=True):
    """FSDP's way: each device updates rows of each tensor, and torch clips."""

    def step(X, y, device_params, devices, lr):
        k = len(devices)
        shares(X, y, device_params, devices)
        sums = [torch.stack([params[i].grad for params in device_params]).sum(0) for i in range(len(device_params[0]))]
        rows = [[*total.split(-(-len(total) // k)), *[total[:0]] * k][:k] for total in sums]
        for rank in range(k):
            mine = [parts[rank] for parts in rows]
            leaves = [torch.zeros_like(part).requires_grad_() for part in (sums if clips_all else mine)]
            for leaf, grad in zip(leaves, sums if clips_all else mine, strict=True):
                leaf.grad = grad.clone()
            norm = float(torch.nn.utils.clip_grad_norm_(leaves, most))
            for i, part in enumerate(mine):
                start = rank * -(-len(sums[i]) // k)
                for params in device_params if gathers else [device_params[rank]]:
                    params[i].data[start : start + len(part)] -= lr * part * min(1.0, most / (norm + 1e-6))

    return step


WAYS = [in_parts, of_owners, of_rows]


@pytest.mark.parametrize("way", WAYS)
def test_right_sharded_steps_pass(way):
    assert judge_step(way()).passed


@pytest.mark.parametrize("way", WAYS)
def test_a_clip_by_the_norm_of_a_part_is_named_with_its_norm(way):
    verdict = judge_step(way(most=0.05))
    assert verdict.name == "clipping by the norm of a part" and "to 0.05," in verdict.words, verdict


@pytest.mark.parametrize("way", WAYS)
def test_a_clip_by_the_norm_of_all_parts_is_not_accused(way):
    verdict = judge_step(way(most=0.05, clips_all=True))
    assert verdict.name == UNSURE and "gives the same weights on several devices as on one" in verdict.words, verdict


@pytest.mark.parametrize("way", WAYS)
def test_parts_that_are_never_gathered_are_named(way):
    assert judge_step(way(gathers=False)).name == "no all-gather"


def test_an_optimizer_that_was_made_too_early_is_named():
    def step(X, y, device_params, devices, lr):
        shares(X, y, device_params, devices)
        old = [param.detach().clone() for param in device_params[0]]
        torch.optim.SGD(old, lr).step()

    verdict = judge_step(step)
    assert verdict.name == "no update" and "before the network was sharded" in verdict.words


def masked_step(loss, op="sum"):
    """A step whose share of the loss is loss(y_hat, y_shard, y, k)."""

    def step(X, y, device_params, devices, lr):
        for X_shard, y_shard, params in zip(*split_batch(X, y, devices), device_params, strict=True):
            for param in params:
                param.grad = None
            loss(lenet(X_shard, params), y_shard, y, len(devices)).backward()
        for i in range(len(device_params[0])):
            all_reduce([params[i].grad for params in device_params], op)
        with torch.no_grad():
            for params in device_params:
                for param in params:
                    param -= lr * param.grad

    return step


def count(y):
    return (y != -100).sum()


def summed(y_hat, y):
    return F.cross_entropy(y_hat, y, reduction="sum")


def with_zero_weights(y_hat, y_shard, y, k):
    losses = F.cross_entropy(y_hat, y_shard.clamp(min=0), reduction="none")
    return (losses * (y_shard != -100)).sum() / count(y)


RIGHT_MASKED = {
    "sums over the count of all": masked_step(lambda y_hat, y_shard, y, k: summed(y_hat, y_shard) / count(y)),
    "weighted means": masked_step(
        lambda y_hat, y_shard, y, k: F.cross_entropy(y_hat, y_shard) * count(y_shard) * k / count(y), "mean"
    ),
    "zero weights": masked_step(with_zero_weights),
}
MASKED = {
    "loss divided by the local batch": [
        masked_step(lambda y_hat, y_shard, y, k: F.cross_entropy(y_hat, y_shard), "mean"),
        masked_step(lambda y_hat, y_shard, y, k: summed(y_hat, y_shard) / count(y_shard) / k),
    ],
    "labels that are left out are counted": [
        masked_step(lambda y_hat, y_shard, y, k: summed(y_hat, y_shard) / len(y)),
        train_batch,
    ],
    "sum for mean": [masked_step(lambda y_hat, y_shard, y, k: F.cross_entropy(y_hat, y_shard))],
    UNSURE: [
        masked_step(lambda y_hat, y_shard, y, k: F.cross_entropy(y_hat, y_shard) * len(y_shard) * k / len(y), "mean")
    ],
}


@pytest.mark.parametrize("name", RIGHT_MASKED)
def test_right_masked_steps_pass_with_and_without_labels_left_out(name):
    assert judge_step(RIGHT_MASKED[name], masked=True).passed and judge_step(RIGHT_MASKED[name]).passed


@pytest.mark.parametrize(("name", "i"), [(name, i) for name in MASKED for i in range(len(MASKED[name]))])
def test_bugs_of_masked_steps_are_named(name, i):
    verdict = judge_step(MASKED[name][i], masked=True)
    assert not verdict.passed and verdict.name == name, verdict


def test_masked_cases_have_labels_in_each_shard_and_say_how_many():
    for plain, case in zip(CASES, MASKED_CASES, strict=True):
        assert case.num_labels() == plain.n - 2 and plain.num_labels() == plain.n
        assert all(count(y) == case.num_labels() for _, y in case.batches)
        assert all(count(part) > 0 for _, y in case.batches for part in y.tensor_split(case.k))
        assert f"{plain.n - 2} of them with a label" in str(case) and "label" not in str(plain)


def test_the_bugs_of_sharded_steps_differ_from_each_other():
    bugs = [bug for bug in KNOWN_BUGS if bug.name == "no all-gather"]
    assert len(bugs) == len(OWNERS) and len(MASKED_BUGS) > 10
    owned = [owners(4) for owners in OWNERS]
    assert all(set(owners.tolist()) == {0, 1, 2, 3} for owners in owned)
    assert all(not torch.equal(owned[i], owned[j]) for i in range(len(owned)) for j in range(i))


def test_masked_must_be_true_or_false():
    with pytest.raises(TypeError, match="masked: expected True or False"):
        check_step(train_batch, masked=1)
