"""The learner's own machine in the cost model: calibrate it, predict a step of DDP, measure the same step."""

import itertools
import statistics
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from d2lite.costs.alpha_beta import Device, Link, all_reduce_seconds
from d2lite.costs.step import bucket_sums, predict_step
from d2lite.meters import Timer
from d2lite.profiling.fitting import fit_device, fit_link, time_all_reduces
from d2lite.training.ddp import my_device
from d2lite.training.from_scratch import sgd

__all__ = ["Calibration", "calibrate", "measured_seconds", "predicted_step", "time_steps"]

OTHER_LENGTHS = (0.5, 2.0)  # of what is sent in a calibration, in lengths of the gradients, which are predicted


@dataclass(frozen=True)
class Calibration:
    """`k` ranks of this machine: how fast each computes while all of them do, and the link between them (None: k = 1).

    `overlap` is whether sending goes on beside computing: on GPUs, not where the cores that compute also send.
    """

    k: int
    device: Device
    link: Link | None
    overlap: bool


def time_steps(make_net, batch_size, num_steps=15, length=None):
    """Return the times of `num_steps` steps of this rank, each with `batch_size` random images; runs inside a rank.

    With `length` DistributedDataParallel does all its work, but what the ranks sum are other tensors, `length` times as
    long as the gradients, and each goes on with its own. It warms up with three steps, in which DDP also sorts its
    buckets.
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
        sgd(params, 0.01, 1)  # DDP has averaged
        net.zero_grad()
        timer.stop()
    return timer.times[3:]


def _others(length):
    """Return the hook of DDP that sums another tensor than each bucket."""
    tensors = {}

    def hook(state, bucket):
        own = bucket.buffer()
        n = max(1, round(length * own.numel()))
        if n not in tensors:
            tensors[n] = torch.zeros(n, device=own.device)
        return dist.all_reduce(tensors[n], async_op=True).get_future().then(lambda _: own)

    return hook


def measured_seconds(workers, make_net, batch_size, num_steps=15, length=None):
    """Return the time of a step with a minibatch of `batch_size`, all ranks together: that of the slowest rank.

    It is the first quartile of the steps: other programs can only make one slower.
    """
    times = workers.run(time_steps, make_net, batch_size // workers.world_size, num_steps, length)
    return statistics.quantiles([max(step) for step in zip(*times, strict=True)], n=4)[0]


def calibrate(workers, make_net, workload, batch_sizes, num_steps=15):
    """Return the Calibration of a pool of ranks: from all-reduces that compute nothing, and from steps.

    `batch_sizes` are those of all ranks together. In each step the ranks send tensors of OTHER_LENGTHS; what the link
    takes for these is taken off. What else it costs to meet in a training (ranks wait, and must be woken up) is
    overhead of the device. All-reduces are measured from 1 KiB to twice the gradients' bytes, at least 16 MiB: beyond
    the caches sending is slower, so that one line does not fit all lengths. Raises ValueError if, three times in a row,
    the times do not grow with the work.
    """
    k, link = workers.world_size, None
    if k > 1:
        longest = max(2 * workload.total_n_bytes, 2**24)
        sizes = [1024, 4096, *(longest // 2**i for i in range(8))]
        link = _fitted(lambda: fit_link(workers.run(time_all_reduces, sizes)[0], k).link)

    def fit():
        points = []
        for size, length in itertools.product(batch_sizes, OTHER_LENGTHS):
            step_s = measured_seconds(workers, make_net, size, num_steps, length)
            points.append((size // k, step_s - _sending_seconds(workload, k, link, length)))
        return fit_device(points, workload.flops, f"one of {k}, on this machine")

    return Calibration(k, _fitted(fit), link, overlap=workers.backend == "nccl")


def _sending_seconds(workload, k, link, length):
    """What a link takes to sum tensors `length` times as long as the gradients over k ranks, bucket by bucket."""
    return sum(all_reduce_seconds("ring", k, length * n_bytes, link) for _, n_bytes in bucket_sums(workload))


def _fitted(fit):
    """What `fit` returns; where other programs disturbed it so much that no line fits, it measures again, twice."""
    for _ in range(2):
        try:
            return fit()
        except ValueError:
            pass
    return fit()


def predicted_step(calibration, workload, batch_size):
    """Return the predicted Step of the calibrated ranks with a minibatch of `batch_size` together."""
    k = calibration.k
    return predict_step(workload, batch_size / k, k, calibration.device, calibration.link, overlap=calibration.overlap)
