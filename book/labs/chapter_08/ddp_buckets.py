"""The buckets in which DistributedDataParallel sends gradients: which tensors, how large, and when each is ready."""

from collections.abc import Sequence
from functools import cache

from notebook_ranks.shared.checks import all_of, positive_int

from .workloads import Workload

__all__ = ["DDP_BUCKETS", "bucket_sums", "buckets"]

MIB = 1024 * 1024
# sizes at which DistributedDataParallel closes its first bucket, and the others (PyTorch documentation: bucket_cap_mb)
DDP_BUCKETS = (1 * MIB, 25 * MIB)


def buckets(n_bytes: Sequence[int], caps: Sequence[int] = DDP_BUCKETS) -> list[list[int]]:
    """Return lists of indices into `n_bytes`, from the last tensor to the first, as gradients become ready.

    A bucket is closed when it holds at least its cap: caps[0] bytes for the first bucket, caps[1] for the second, and
    the last of `caps` for all further buckets. DistributedDataParallel has the same rule (Li et al. 2020,
    arXiv:2006.15704, section 3.2.3).
    """
    found: list[list[int]] = [[]]
    held = 0
    for i in reversed(range(len(n_bytes))):
        found[-1].append(i)
        held += n_bytes[i]
        if held >= caps[min(len(found), len(caps)) - 1]:
            found.append([])
            held = 0
    return [bucket for bucket in found if bucket]


def bucket_sums(workload: Workload, caps: Sequence[int] = DDP_BUCKETS) -> list[tuple[float, int]]:
    """Return for each bucket the fraction (0 to 1) of the backward pass that is done when it is ready, and its size.

    Raises ValueError or TypeError if the caps are not whole numbers above 0, at least one.
    """
    return list(_bucket_sums(workload, tuple(all_of("caps", caps, positive_int, least=1))))


@cache
def _bucket_sums(workload: Workload, caps: tuple[int, ...]) -> list[tuple[float, int]]:
    found, done = [], 0
    for bucket in buckets(workload.n_bytes, caps):
        done += sum(workload.macs[i] for i in bucket)
        found.append((done / sum(workload.macs), sum(workload.n_bytes[i] for i in bucket)))
    return found
