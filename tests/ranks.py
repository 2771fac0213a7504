"""Real ranks for tests: pools that start once in a run, since a start takes seconds."""

import os

import pytest
import torch.distributed as dist

from d2lite import Workers

__all__ = ["NEEDS_RANKS", "close_pools", "my_pair", "pool_of"]

NEEDS_RANKS = pytest.mark.skipif(os.name == "nt", reason="needs ranks")
_pools = {}  # {number of ranks: the pool}


def pool_of(*sizes):
    """Return a fixture: a pool of ranks on CPU cores, for each of these numbers of ranks; other files share it."""

    @pytest.fixture(scope="module", params=sizes)
    def pool(request):
        if request.param not in _pools:
            _pools[request.param] = Workers(request.param, timeout_s=30)
            _pools[request.param].backend = "gloo"
        return _pools[request.param]

    return pool


def my_pair():
    """Return the group of this rank of four, ranks 0 and 2 or 1 and 3, the number of the pair, and its place in it."""
    pairs = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    return pairs[dist.get_rank() % 2], dist.get_rank() % 2, dist.get_rank() // 2


def close_pools():
    """End all ranks; it is called at the end of the run."""
    while _pools:
        _pools.popitem()[1].close()
