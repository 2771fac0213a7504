"""The buckets of gradients, against DistributedDataParallel's own."""

import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from d2lite.labs.chapter_08.ddp_buckets import DDP_BUCKETS, buckets


@given(st.lists(st.integers(1, 2 * 10**7), min_size=1, max_size=40))
def test_buckets_are_those_of_ddp(numels):
    with torch.device("meta"):
        reversed_tensors = [torch.empty(n) for n in reversed(numels)]
    theirs, _ = dist._compute_bucket_assignment_by_size(reversed_tensors, list(DDP_BUCKETS))
    n = len(numels)
    assert buckets([4 * numel for numel in numels]) == [[n - 1 - i for i in bucket] for bucket in theirs]
