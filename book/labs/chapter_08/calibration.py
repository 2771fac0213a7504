"""Calibrate the cost model (latency, bandwidth, compute rate) to this machine; predict and measure a step of DDP."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from torch import nn

from d2lite.costs.alpha_beta import Device, Link, all_reduce_seconds
from d2lite.workers import Workers

from ..chapter_04.fitting import fit_device, fit_link
from ..chapter_04.timed_on_ranks import measured_seconds, time_all_reduces
from .ddp_buckets import bucket_sums
from .step import StepPrediction, predict_step
from .workloads import Workload

__all__ = ["Calibration", "calibrate", "predicted_step"]

OTHER_LENGTHS = (0.5, 2.0)  # a calibration sends these multiples of the gradients, never what is predicted from it

_T = TypeVar("_T")


@dataclass(frozen=True)
class Calibration:
    """The cost model of `k` ranks on this machine: a device while all ranks compute, and the link between the ranks.

    `link` is None for one rank. `overlap` is True if ranks send while they compute: on GPUs, but not on CPUs, where the
    cores that compute also send.
    """

    k: int
    device: Device
    link: Link | None
    overlap: bool


def calibrate(
    workers: Workers,
    make_net: Callable[[], nn.Module],
    workload: Workload,
    batch_sizes: Sequence[int],
    num_steps: int = 15,
) -> Calibration:
    """Return the Calibration of a pool of ranks, from all-reduces without computing and from complete steps.

    `batch_sizes` count the examples of all ranks together. In each step the ranks send tensors of OTHER_LENGTHS, and
    the predicted time of the link for these is subtracted. Other costs of synchronisation (ranks wait, and the
    operating system must wake them) count as overhead of the device. All-reduces are measured from 1 KiB to twice the
    bytes of the gradients, at least 16 MiB: longer ones do not fit into the caches and are slower, so that one line
    does not fit all lengths. Raises ValueError if the times do not grow with the work, three times in a row.
    """
    k, link = workers.world_size, None
    if k > 1:
        longest = max(2 * workload.total_n_bytes, 2**24)
        sizes = [1024, 4096, *(longest // 2**i for i in range(8))]
        link = _fitted(lambda: fit_link(workers.run(time_all_reduces, sizes)[0], k).link)

    def fit() -> Device:
        points = []
        for size, length in itertools.product(batch_sizes, OTHER_LENGTHS):
            step_s = measured_seconds(workers, make_net, size, num_steps, length)
            points.append((size // k, step_s - _sending_seconds(workload, k, link, length)))
        return fit_device(points, workload.flops, f"one of {k}, on this machine")

    return Calibration(k, _fitted(fit), link, overlap=workers.backend == "nccl")


def _sending_seconds(workload: Workload, k: int, link: Link | None, length: float) -> float:
    """The predicted time to sum tensors `length` times as long as the gradients over k ranks, bucket by bucket."""
    if link is None:
        return 0.0  # one rank sends nothing
    return sum(all_reduce_seconds("ring", k, length * n_bytes, link) for _, n_bytes in bucket_sums(workload))


def _fitted(fit: Callable[[], _T]) -> _T:
    """Return fit(), which measures; if other programs disturbed it so much that no line fits, try again, twice."""
    for _ in range(2):
        try:
            return fit()
        except ValueError:
            pass
    return fit()


def predicted_step(calibration: Calibration, workload: Workload, batch_size: int) -> StepPrediction:
    """Return the predicted Step of the calibrated ranks with a minibatch of `batch_size`, divided among them."""
    k, link = calibration.k, calibration.link or Link(0.0, 1.0)  # one rank sends nothing: any link will do
    return predict_step(workload, batch_size / k, k, calibration.device, link, overlap=calibration.overlap)
