"""What a reset leaves in the small network, part by part."""

import pytest
import torch

from d2lite.labs.chapter_09 import KEPT, start_net
from d2lite.models import small_net

# entries of the state: BatchNorm's are layers 1 and 5
RUNNING = {f"{i}.{name}" for i in (1, 5) for name in ("running_mean", "running_var", "num_batches_tracked")}
NORM = RUNNING | {f"{i}.{name}" for i in (1, 5) for name in ("weight", "bias")}


def used_state():
    return {name: torch.full_like(value, 7) for name, value in small_net().state_dict().items()}


@pytest.mark.parametrize("kept", KEPT)
def test_exactly_what_is_named_is_kept(kept):
    state = start_net(0, kept, used_state()).state_dict()
    fresh = start_net(0).state_dict()
    others = set(state) - NORM
    expected = {"nothing": set(), "running statistics": RUNNING, "BatchNorm": NORM, "weights": others}
    expected["everything"] = set(state)
    left = {name for name, value in state.items() if (value == 7).all()}
    assert left == expected[kept]
    assert all(torch.equal(state[name], fresh[name]) for name in set(state) - left)


def test_the_seed_decides_the_values_and_the_global_generator_is_left_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    a, b, c = (start_net(seed)[0].weight for seed in (1, 1, 2))
    assert torch.equal(a, b) and not torch.equal(a, c) and torch.equal(before, torch.get_rng_state())


def test_its_size():
    assert sum(p.numel() for p in small_net().parameters()) == 25_770
    assert small_net()(torch.rand(3, 1, 28, 28)).shape == (3, 10)


def test_errors():
    with pytest.raises(ValueError, match="kept: expected one of nothing, running statistics, BatchNorm"):
        start_net(0, "all")
    with pytest.raises(ValueError, match="used: expected the state of a trained network, of which weights is kept"):
        start_net(0, "weights")
