"""Real ranks for tests: pools that start once in a run, since a start takes seconds."""

import os

import pytest

from d2lite import Workers

__all__ = ["NEEDS_RANKS", "close_pools", "pool_of"]

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


def close_pools():
    """End all ranks; it is called at the end of the run."""
    while _pools:
        _pools.popitem()[1].close()
