"""Real steps with a clock beside them: in the threads of `train_batch`, and on real ranks with DDP."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from d2lite.collectives.on_devices import all_reduce
from d2lite.models import lenet
from d2lite.parallel import parallel_apply
from d2lite.profiling.recorder import Recorder
from d2lite.training.ddp import my_device, my_shard
from d2lite.training.from_scratch import sgd
from d2lite.training.sharding import split_batch

__all__ = ["record_buckets", "record_ddp", "record_train_batch"]


def record_buckets(net, recorder):
    """Let a DistributedDataParallel note when each bucket is ready and when its all-reduce has ended.

    Returns the list to which the ends are appended; it stays empty on one rank, which sends nothing.
    """
    sent = []

    def hook(state, bucket):
        buffer, name = bucket.buffer(), f"bucket {bucket.index()}"
        start = recorder.lap("backward", f"backward {bucket.index()}")
        if dist.get_world_size() == 1:
            alone = torch.futures.Future()
            alone.set_result(buffer)
            return alone

        def done(future):
            sent.append(recorder.mark())
            recorder.add("all_reduce", name, start, sent[-1], buffer.nbytes)
            return future.value()[0]

        buffer.div_(dist.get_world_size())
        return dist.all_reduce(buffer, async_op=True).get_future().then(done)

    net.register_comm_hook(None, hook)
    return sent


def record_ddp(make_net, next_batch, num_steps, lr=0.01, bucket_cap_mb=25):
    """Train on the ranks of the current process group and return the recorded steps of this rank.

    `next_batch()` returns a global minibatch X, y, of which each rank takes its shard; that is the part "data". Runs
    inside a rank: `step_times(workers.run(record_ddp, make_net, next_batch, 20))`.
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
        sgd(params, lr, 1)  # DDP has averaged the gradients
        net.zero_grad()
        recorder.lap("update")
        recorder.end()
    return recorder.steps


def record_train_batch(X, y, device_params, devices, lr, recorder):
    """Take the step of `train_batch` and note it in `recorder`, a Recorder of these devices: a lane for each.

    The five moves are those of `train_batch`, with the clock read in between. The caller's thread cuts, adds and
    updates for all devices; a replica that is ready before the slowest one waits.
    """
    lanes, begin = range(len(devices)), recorder.begin()
    X_shards, y_shards = split_batch(X, y, devices)
    given = [recorder.mark(i) for i in lanes]

    def replica(i, X, y, params):
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
        return backward

    ready = parallel_apply(replica, list(zip(lanes, X_shards, y_shards, device_params, strict=True)), devices)
    together = [recorder.mark(i) for i in lanes]
    for i in range(len(device_params[0])):
        all_reduce([params[i].grad for params in device_params], op="sum")
    summed = [recorder.mark(i) for i in lanes]
    n_bytes = sum(param.grad.nbytes for param in device_params[0])
    for i, params in enumerate(device_params):
        start = recorder.mark(i)
        sgd(params, lr, len(X))
        recorder.add("update", "update", start, recorder.mark(i), lane=i)
        if len(devices) > 1:
            recorder.add("wait", "wait for the slowest", ready[i], together[i], lane=i)
            recorder.add("all_reduce", "all gradients", together[i], summed[i], n_bytes, lane=i)
            recorder.add("wait", "wait for its turn", summed[i], start, lane=i)
    recorder.end()
