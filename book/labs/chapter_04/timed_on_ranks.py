"""Times of all-reduces and of complete steps of DDP on ranks, measured: what a calibration begins with."""

import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from d2lite.devices import synchronize
from d2lite.meters import Timer
from d2lite.training.ddp import my_device
from d2lite.training.from_scratch import sgd_step
from d2lite.workers import Workers

__all__ = ["SIZES", "measured_seconds", "time_all_reduces", "time_steps"]

SIZES = tuple(2**i for i in (10, 14, 16, 18, 20, 21, 22, 23, 24, 25))  # 1 KiB to 32 MiB
CACHE_N_BYTES = 2**26  # more than fits into the caches of one core


def time_all_reduces(sizes: Iterable[int] = SIZES, repeats: int = 15) -> list[tuple[int, float]]:
    """Return [(n_bytes, seconds)], times of float32 all-reduces of the current process group.

    Each time is the first quartile of `repeats` all-reduces: other programs can only make one slower. Before each
    all-reduce other data pass through the caches, as they do in training. Call it inside a rank:
    `Workers(2).run(time_all_reduces)[0]` is the input of `fit_link`.
    """
    device = torch.device("cuda") if "nccl" in dist.get_backend() else torch.device("cpu")
    measurements, other = [], torch.zeros(CACHE_N_BYTES // 4, device=device)
    for n_bytes in sizes:
        tensor = torch.zeros(max(1, n_bytes // 4), device=device)
        seconds = []
        for i in range(repeats + 2):  # the first two warm up
            other.add_(1.0)
            dist.barrier()
            synchronize([device])
            start = time.perf_counter()
            dist.all_reduce(tensor)
            synchronize([device])
            if i >= 2:
                seconds.append(time.perf_counter() - start)
        measurements.append((tensor.numel() * tensor.element_size(), statistics.quantiles(seconds, n=4)[0]))
    return measurements


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

    def hook(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
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
