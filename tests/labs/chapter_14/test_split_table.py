"""A row of the table of splits: right splits are one device, and mistakes that two equal halves would hide are seen."""

import pytest
import torch

from d2lite.labs.chapter_13 import plain_step
from d2lite.labs.chapter_14 import (
    apart_after_four_steps,
    counted_step,
    shard_network,
    shard_sequence,
    sharded_cross_entropy,
    tensor_step,
    zeros_for,
)
from tests.ranks import NEEDS_RANKS, pool_of

pytestmark = [NEEDS_RANKS]
pool = pool_of(2)


def as_it_is(net):
    return net


@pytest.mark.parametrize(
    ("cut", "step", "copies"),
    [(as_it_is, plain_step, 1), (shard_network, tensor_step, 2), (shard_sequence, tensor_step, 2)],
)
def test_parts_and_losses_are_those_of_one_device(pool, cut, step, copies):
    found = pool.run(apart_after_four_steps, cut, step)
    assert max(apart for apart, _, _ in found) < 1e-9
    losses = [sum(of_step) / copies for of_step in zip(*(losses for _, losses, _ in found), strict=True)]
    assert losses == pytest.approx(found[0][2], abs=1e-9)


def step_without_the_logit_of_the_right_character(net, momenta, X, y, lr):
    tensor_step(net, momenta, X, y, lr)
    logits = net(X).detach()
    return sharded_cross_entropy(logits, (y + 1) % 96, net.embedding.character.first)


def test_a_wrong_loss_with_right_parameters_is_seen(pool):
    found = pool.run(apart_after_four_steps, shard_network, step_without_the_logit_of_the_right_character)
    assert max(apart for apart, _, _ in found) < 1e-9
    assert all(abs(losses[0] - right[0]) > 1e-3 for _, losses, right in found)


def test_a_step_is_counted(pool):
    held, calls = pool.run(counted_step, as_it_is, plain_step)[0]
    assert held == 2 * 4 * 826_208 and sum(call.sent_n_bytes for call in calls) == 4 * 826_208


def test_momenta_begin_with_zero():
    assert [m.tolist() for m in zeros_for([torch.ones(2), torch.ones(1)])] == [[0.0, 0.0], [0.0]]
