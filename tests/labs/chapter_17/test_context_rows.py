"""A row of context parallelism prints what is counted beside the formula, and refuses another network."""

import pytest
import torch

from d2lite import Transformer
from d2lite.labs.chapter_17 import (
    causal_attention,
    context_row,
    context_step,
    output_and_gradients,
    random_qkv,
    split_text,
)
from d2lite.labs.chapter_17 import ring_attention as ring
from tests.ranks import NEEDS_RANKS, pool_of

pytestmark = [NEEDS_RANKS]
pool = pool_of(2)


def split_ring(net):
    return split_text(net, ring)


def attention_that_looks_ahead(q, k, v, t, group=None):
    return ring(q.flip(1), k, v, t, group)


def split_wrongly(net):
    return split_text(net, attention_that_looks_ahead)


def test_a_row_has_the_bytes_of_the_formula(pool, capsys):
    exchanged = 2 * 4 * 4 * 1 / 2 * 4 * 16 * 32 * 128  # forward and backward, four blocks, k and v as q, k, v, result
    formula = exchanged + 4 * sum(param.numel() for param in Transformer().parameters())
    context_row(pool, "ring", split_ring, context_step, formula)
    printed = capsys.readouterr().out
    assert printed.startswith("context, ring ") and f"formula: {formula:,.0f} bytes, counted: {formula:,.0f}" in printed


def test_another_network_is_an_error(pool):
    with pytest.raises(ValueError, match="wrong: expected the network of one device"):
        context_row(pool, "wrong", split_wrongly, context_step, 0.0)


def test_gradients_are_those_of_the_weighted_sum_of_the_output():
    qkv, w = random_qkv(t=5)
    out, *grads = output_and_gradients(causal_attention, qkv, w)
    leaves = [x.clone().requires_grad_() for x in qkv]
    (causal_attention(*leaves) * w).sum().backward()
    assert torch.equal(out, causal_attention(*qkv)) and all(map(torch.equal, grads, [x.grad for x in leaves]))
    assert qkv[0].std() > 20 > 2 > qkv[1].std()
