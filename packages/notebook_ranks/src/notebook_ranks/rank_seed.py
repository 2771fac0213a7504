"""The random numbers of a rank: a fork has the state of its parent, and all ranks would draw the same numbers."""

import random
import sys

import torch

__all__ = ["seed_rank"]


def seed_rank(seed: int | None = None) -> None:
    """Let the random numbers of PyTorch, Python and NumPy begin anew; without a seed, each rank has its own ones."""
    torch.seed() if seed is None else torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
