"""Calibrate the cost model to this machine, predict a step of DDP, and measure the same step."""

import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from d2lite.costs.alpha_beta import Device, Link, all_reduce_seconds
from d2lite.costs.step import StepPrediction, bucket_sums, predict_step
from d2lite.costs.workloads import Workload
from d2lite.meters import Timer
from d2lite.profiling.fitting import fit_device, fit_link, time_all_reduces
from d2lite.training.ddp import my_device
from d2lite.training.from_scratch import sgd_step
from d2lite.workers.pool import Workers

__all__ = ["Calibration", "calibrate", "measured_seconds", "predicted_step", "time_steps"]

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


def time_steps(
    make_net: Callable[[], nn.Module], batch_size: int, num_steps: int = 15, length: float | None = None
) -> list[float]:
    """Return the seconds of `num_steps` steps of this rank, each with `batch_size` random images.

    Call it inside a rank. With `length`, DistributedDataParallel does all its work, but the ranks sum other tensors,
    `length` times as long as the gradients, and each rank updates with its own gradients. Three steps before are not
    timed; in the second of them DDP rebuilds its buckets in the order in which the gradients became ready.
    """
    device = my_device()
    net = DistributedDataParallel(make_net().to(device))
    if length is not None:
        net.register_comm_hook(None, _others(length))
    params = list(net.parameters())
    X, y = torch.rand(batch_size, 1, 28, 28, device=device), torch.randint(10, (batch_size,), device=device)
    timer = Timer([device])
    for _ in range(num_steps + 3):
        timer.start()
        F.cross_entropy(net(X), y).backward()
        sgd_step(params, 0.01, 1)  # DDP has averaged
        net.zero_grad()
        timer.stop()
    return timer.times[3:]


def _others(length: float) -> Callable[[Any, dist.GradBucket], torch.futures.Future[torch.Tensor]]:
    """Return a hook for DDP that sums, for each bucket, another tensor `length` times as long."""
    tensors: dict[int, torch.Tensor] = {}

    def hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        own = bucket.buffer()
        n = max(1, round(length * own.numel()))
        if n not in tensors:
            tensors[n] = torch.zeros(n, device=own.device)
        return dist.all_reduce(tensors[n], async_op=True).get_future().then(lambda _: own)

    return hook


def measured_seconds(
    workers: Workers,
    make_net: Callable[[], nn.Module],
    batch_size: int,
    num_steps: int = 15,
    length: float | None = None,
) -> float:
    """Return the measured seconds of a step with a minibatch of `batch_size`, divided among all ranks.

    A step takes as long as on its slowest rank. The result is the first quartile of the steps: other programs can only
    make one slower.
    """
    times = workers.run(time_steps, make_net, batch_size // workers.world_size, num_steps, length)
    return statistics.quantiles([max(step) for step in zip(*times, strict=True)], n=4)[0]


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
