"""The random numbers of a rank repeat with a seed, and are its own ones without."""

import random

import numpy as np
import torch

from notebook_ranks.rank_seed import seed_rank


def drawn(seed):
    seed_rank(seed)
    return float(torch.rand(1, dtype=torch.float64)), random.random(), np.random.rand()


def test_a_seed_repeats_the_numbers_and_no_seed_does_not():
    with torch.random.fork_rng(devices=[]):
        before = random.getstate(), np.random.get_state()
        try:
            assert drawn(3) == drawn(3)
            for one, other in zip(drawn(None), drawn(None), strict=True):
                assert one != other
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])
