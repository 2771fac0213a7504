"""Real steps, recorded: in the threads of `train_batch`, and on real ranks with DDP."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from d2lite.collectives.on_devices import all_reduce
from d2lite.models import lenet
from d2lite.profiling.recorder import Moment, Recorder
from d2lite.replica_threads import parallel_apply
from d2lite.trace import Event
from d2lite.training.ddp import my_device, my_shard
from d2lite.training.from_scratch import sgd_step
from d2lite.training.scatter import split_batch

__all__ = ["record_buckets", "record_ddp", "record_train_batch"]


def record_buckets(net: DistributedDataParallel, recorder: Recorder) -> list[Moment]:
    """Record when each bucket of a DistributedDataParallel becomes ready and when its all-reduce has ended.

    Call `recorder.begin` before each forward pass, and `recorder.lap` after it. Returns the list to which the end of
    each all-reduce is appended. It stays empty on one rank, which sends nothing.
    """
    sent: list[Moment] = []

    def hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        buffer, name = bucket.buffer(), f"bucket {bucket.index()}"
        start = recorder.lap("backward", f"backward {bucket.index()}")
        if dist.get_world_size() == 1:
            alone: torch.futures.Future[torch.Tensor] = torch.futures.Future()
            alone.set_result(buffer)
            return alone

        def done(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
            sent.append(recorder.mark())
            recorder.add("all_reduce", name, start, sent[-1], buffer.nbytes)
            return future.value()[0]

        buffer.div_(dist.get_world_size())
        return dist.all_reduce(buffer, async_op=True).get_future().then(done)

    net.register_comm_hook(None, hook)
    return sent


def record_ddp(
    make_net: Callable[[], nn.Module],
    next_batch: Callable[[], tuple[torch.Tensor, torch.Tensor]],
    num_steps: int,
    lr: float = 0.01,
    bucket_cap_mb: float = 25,
) -> list[list[Event]]:
    """Train on the ranks of the current process group and return the recorded steps of this rank.

    `next_batch()` returns a global minibatch X [b, ...], y [b]; each rank takes its shard. Both together are the part
    "data" of the step. Call it inside a rank: `step_times(workers.run(record_ddp, make_net, next_batch, 20))`.
    """
    recorder = Recorder(dist.get_rank(), [my_device()])
    net = DistributedDataParallel(make_net().to(my_device()), bucket_cap_mb=bucket_cap_mb)
    params = list(net.parameters())
    sent = record_buckets(net, recorder)
    for _ in range(num_steps):
        recorder.begin()
        X, y = my_shard(*next_batch())
        recorder.lap("data")
        loss = F.cross_entropy(net(X), y)
        recorder.lap("forward")
        loss.backward()
        if sent:  # between the last bucket and its end the backward pass only waited
            recorder.skip(sent[-1])
        recorder.lap("backward", "copy back")
        sgd_step(params, lr, 1)  # DDP has averaged the gradients
        net.zero_grad()
        recorder.lap("update")
        recorder.end()
    return recorder.steps


def record_train_batch(
    X: torch.Tensor,
    y: torch.Tensor,
    device_params: Sequence[Sequence[torch.Tensor]],
    devices: Sequence[torch.device],
    lr: float,
    recorder: Recorder,
) -> torch.Tensor:
    """Take the step of `train_batch`, return its mean loss, and record it in a `recorder` of these devices.

    The clock is read between the parts: cut the minibatch, compute the gradients of each shard, add them, update each
    replica. A replica that is ready early waits for the slowest one; with more replicas than cores, also for a core.
    """
    lanes, begin = range(len(devices)), recorder.begin()
    X_shards, y_shards = split_batch(X, y, devices)
    given = [recorder.mark(i) for i in lanes]

    def gradients(
        i: int, X: torch.Tensor, y: torch.Tensor, params: Sequence[torch.Tensor]
    ) -> tuple[Moment, torch.Tensor]:
        for param in params:
            param.grad = None
        start = recorder.mark(i)
        loss = F.cross_entropy(lenet(X, params), y, reduction="sum")
        forward = recorder.mark(i)
        loss.backward()
        backward = recorder.mark(i)
        recorder.add("data", "data", begin[i], given[i], lane=i)
        recorder.add("wait", "wait for a core", given[i], start, lane=i)
        recorder.add("forward", "forward", start, forward, lane=i)
        recorder.add("backward", "backward", forward, backward, lane=i)
        return backward, loss.detach()

    ready, losses = zip(*parallel_apply(gradients, devices, lanes, X_shards, y_shards, device_params), strict=True)
    together = [recorder.mark(i) for i in lanes]
    grads = [[param.grad for param in params if param.grad is not None] for params in device_params]
    for tensors in zip(*grads, strict=True):
        all_reduce(tensors, op="sum")
    summed = [recorder.mark(i) for i in lanes]
    n_bytes = sum(grad.nbytes for grad in grads[0])

    def update(i: int, params: Sequence[torch.Tensor]) -> None:
        start = recorder.mark(i)
        sgd_step(params, lr, len(X))
        recorder.add("update", "update", start, recorder.mark(i), lane=i)
        if len(devices) > 1:
            recorder.add("wait", "wait for the slowest", ready[i], together[i], lane=i)
            recorder.add("all_reduce", "all gradients", together[i], summed[i], n_bytes, lane=i)
            recorder.add("wait", "wait for a core", summed[i], start, lane=i)

    parallel_apply(update, devices, lanes, device_params)
    recorder.end()
    total: torch.Tensor = sum(loss.to(devices[0]) for loss in losses)
    return total / len(X)
