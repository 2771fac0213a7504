"""Real ranks for the tests of a module."""

import os

import pytest

from d2lite import Workers

__all__ = ["NEEDS_RANKS", "pool_of"]

NEEDS_RANKS = pytest.mark.skipif(os.name == "nt", reason="needs ranks")


def pool_of(*sizes):
    """Return a fixture: a pool of ranks on CPU cores for the tests of a module, once for each number of ranks."""

    @pytest.fixture(scope="module", params=sizes)
    def pool(request):
        with Workers(request.param, timeout_s=30) as workers:
            workers.backend = "gloo"
            yield workers

    return pool
