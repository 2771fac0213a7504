"""A pool for a learner's code: on the CPU, and with the reason of its end in one line."""

import warnings

from d2lite.workers import Workers
from notebook_ranks.failures import WorkersError

__all__ = ["REASON_CHARS", "quiet_pool", "why_it_ended"]

REASON_CHARS = 300


def quiet_pool(world_size: int, timeout_s: float = 60) -> Workers:
    """Return a pool for tensors on the CPU, with GPUs or without; it does not warn that ranks share cores."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        workers = Workers(world_size, timeout_s)
    workers.backend = "gloo"
    return workers


def why_it_ended(error: WorkersError) -> str:
    """Return the first line of what ended the process of an answer."""
    return f"its process ended: {str(error).splitlines()[0][:REASON_CHARS]}"
