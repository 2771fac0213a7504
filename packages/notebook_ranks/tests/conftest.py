"""The pools of two ranks of this folder's tests: one for each file, with the time-out that the file sets."""

import pytest

from d2lite.exercises.bounded import quiet_pool
from notebook_ranks.pool import Workers


@pytest.fixture(scope="module")
def pool(request):
    """Two ranks; their collectives fail after the file's TIMEOUT_S seconds."""
    with Workers(2, timeout_s=request.module.TIMEOUT_S) as workers:
        yield workers


@pytest.fixture(scope="module")
def gloo_pool(request):
    """The same with tensors on the CPU, on machines with GPUs as well."""
    with quiet_pool(2, timeout_s=request.module.TIMEOUT_S) as workers:
        yield workers
