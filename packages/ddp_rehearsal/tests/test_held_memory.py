"""The bytes of a step, against peaks that were measured on cards."""

import pytest
import torch
from torch import nn

from ddp_rehearsal.held_memory import bytes_of, bytes_of_update, most_held

GIB = 2**30
# FakeGPU's page "LLM SFT memory estimation" (commit 7d5cf83): full fine-tuning of Qwen3.5-0.8B in bfloat16 with AdamW
# on sequences of 16, on an RTX 3090 Ti and an RTX PRO 5000; on two ranks with every parameter cut in two by FSDP
NUM_PARAMS, LARGEST = 752_393_024, 254_280_704
PEAKS = {1: 6.626, 2: 3.308}


def adamw(sizes, **options):
    params = [nn.Parameter(torch.empty(n, dtype=torch.bfloat16, device="meta")) for n in sizes]
    optimizer = torch.optim.AdamW(params, **options)
    for p in params:
        p.grad = torch.empty_like(p)
        optimizer.state[p] = {name: torch.empty_like(p) for name in ("exp_avg", "exp_avg_sq")}
    return optimizer, params


@pytest.mark.parametrize("k", PEAKS)
def test_published_peaks(k):
    optimizer, params = adamw([LARGEST // k, *[(NUM_PARAMS - LARGEST) // k // 24] * 24], foreach=False)
    state = [t for p in params for t in optimizer.state[p].values()]
    most = most_held(bytes_of(params), bytes_of(params), bytes_of(state), -1, bytes_of_update(optimizer))
    assert most / GIB == pytest.approx(PEAKS[k], rel=0.02)


def test_what_an_update_needs_for_a_moment():
    assert bytes_of_update(adamw([100, 50])[0]) == 300  # all at once: the parameters once more
    assert bytes_of_update(adamw([100, 50], foreach=False)[0]) == 400  # twice the largest
    optimizer, params = adamw([100, 50])
    optimizer.param_groups[0]["fused"] = True
    assert bytes_of_update(optimizer) == 0
    assert bytes_of_update(torch.optim.SGD(params, 0.1)) == 0


def test_activations_are_gone_when_the_update_begins():
    assert most_held(1, 2, 3, 40, 50) == 56 and most_held(1, 2, 3, 50, 40) == 56 and most_held(1, 2, 3, -1, 0) == 6
