"""The comparison of MLPs on ranks: a right one passes, and each of its three parts can be found wrong alone."""

import torch.nn.functional as F

from d2lite.labs.chapter_14 import mlps_right
from tests.ranks import NEEDS_RANKS, pool_of

pytestmark = [NEEDS_RANKS]
pool = pool_of(2)


def some_mlps(X, up, down, bias, f, g):
    def mlp(X):
        return F.linear(F.gelu(F.linear(X, up)), down)

    return {
        "right": lambda: g(mlp(f(X))) + bias,
        "no f": lambda: g(mlp(X)) + bias,
        "f for the bias": lambda: g(mlp(f(X))) + f(bias),
        "no g": lambda: mlp(f(X)) + bias,
    }


def test_outputs_and_both_gradients_are_compared(pool):
    for found in pool.run(mlps_right, some_mlps):
        assert found["right"] == [True, True, True]
        assert found["no f"] == [True, False, True]
        assert found["f for the bias"] == [True, True, False]
        assert found["no g"][0] is False
