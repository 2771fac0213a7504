"""What a prediction card needs of the ranks of this job: steps, and what they consist of; for torchrun.

`torchrun --nproc-per-node=2 book/scripts/measure_card.py --out measured.json` trains an MLP with
DistributedDataParallel and measures its steps, each rank's computing without communication, the latency and the
bandwidth of a message, and the communication of a step alone. Rank 0 writes and prints the JSON that
`d2lite.labs.chapter_16.measured_from_json` reads. With `--card` it writes the card that predicts the step from these
parts, without looking at the steps.
"""

import argparse
import contextlib
import datetime
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from d2lite import num_gpus, synchronize
from d2lite.costs import Device, Link
from d2lite.labs.chapter_08 import predict_step, workload
from d2lite.labs.chapter_16 import Measured, card_of_step
from d2lite.training import exit_rank, my_device

__all__ = []

TIMEOUT_S = 120
WARM_UP = 3  # steps; DistributedDataParallel settles its buckets in the first


def device():
    """Return this rank's GPU where each rank of a host has one of its own, else the CPU."""
    own_gpu = num_gpus() >= int(os.environ["LOCAL_WORLD_SIZE"])
    return my_device() if own_gpu else torch.device("cpu")


def mlp(width, depth):
    """Return a network with `depth` hidden layers of `width` numbers: 784-width-...-width-10."""
    torch.manual_seed(0)
    sizes = [784] + depth * [width]
    layers = [layer for n, m in zip(sizes, sizes[1:], strict=False) for layer in (nn.Linear(n, m), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def seconds(act, rounds):
    """Return the seconds of each of so many calls; before each, ranks wait for each other."""
    times = []
    for _ in range(rounds):
        dist.barrier()
        start = time.perf_counter()
        act()
        synchronize([device()])
        times.append(time.perf_counter() - start)
    return times


def send_one_at_a_time(net):
    """Let a DistributedDataParallel send its buckets one after the other, as NCCL does: gloo sends two at a time."""
    sender = ThreadPoolExecutor(1)

    def all_reduce(bucket, done):
        try:
            dist.all_reduce(tensor := bucket.buffer().div_(dist.get_world_size()))
            done.set_result(tensor)
        except Exception as error:
            done.set_exception(error)

    def hook(_, bucket):
        sender.submit(all_reduce, bucket, done := torch.futures.Future())
        return done

    net.register_comm_hook(None, hook)


def slowest(times):
    """Return the median over rounds of the time of the rank that took longest."""
    times = torch.tensor(times, dtype=torch.float64, device=device())
    dist.all_reduce(times, dist.ReduceOp.MAX)
    return times.median().item()


def median_all_reduce_s(n_bytes, rounds):
    """Return the median seconds of an all-reduce of so many bytes."""
    tensor = torch.zeros(max(1, n_bytes // 4), device=device())
    dist.all_reduce(tensor)  # connects those that talk to each other
    return slowest(seconds(lambda: dist.all_reduce(tensor), rounds))


def main():
    """Measure under torchrun."""
    parser = argparse.ArgumentParser(prog="torchrun --nproc-per-node=2 book/scripts/measure_card.py")
    parser.add_argument("--out", required=True, help="the file to write; rank 0 writes it")
    parser.add_argument("--card", help="write the card that predicts a step here, too")
    parser.add_argument("--batch-size", type=int, default=3072, help="examples of a step on each rank")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--depth", type=int, default=6, help="hidden layers")
    parser.add_argument("--bucket-mb", type=float, default=1.0, help="a bucket is sent when it holds so many MiB")
    parser.add_argument("--one-bucket", action="store_true", help="send all gradients after the backward pass")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--slow-rank", type=int, default=0, help="the rank that is slowed down")
    parser.add_argument("--slow-s", type=float, default=0.0, help="by so many seconds per step")
    args = parser.parse_args()
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        parser.error("expected torchrun with two ranks or more, got one, which sends nothing: see the usage line")
    torch.set_num_threads(1)
    on_gpu = device().type == "cuda"
    if on_gpu:
        torch.cuda.set_device(device())
    dist.init_process_group("nccl" if on_gpu else "gloo", timeout=datetime.timedelta(seconds=TIMEOUT_S))
    k, module = dist.get_world_size(), mlp(args.width, args.depth).to(device())
    messages, share = (
        2 * (k - 1),
        2 * (k - 1) / k,
    )  # of a ring: how many in turn, and bytes sent
    net = DistributedDataParallel(module, bucket_cap_mb=1e6 if args.one_bucket else args.bucket_mb)
    if not on_gpu:
        send_one_at_a_time(net)
    X = torch.randn(args.batch_size, 784, device=device())
    y = torch.randint(10, (args.batch_size,), device=device())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def step(synchronised=True):
        if dist.get_rank() == args.slow_rank:
            time.sleep(args.slow_s)
        with contextlib.nullcontext() if synchronised else net.no_sync():
            optimizer.zero_grad()
            F.cross_entropy(net(X), y).backward()
        optimizer.step()

    seconds(step, WARM_UP)
    seconds(lambda: step(False), 1)
    step_s, alone_s = [], []
    for _ in range(args.steps):  # in turn, so that a machine that gets slower makes both slower
        step_s += seconds(step, 1)
        alone_s += seconds(lambda: step(False), 1)
    computing = torch.tensor([statistics.median(alone_s)], device=device())
    compute_s = [torch.zeros_like(computing) for _ in range(k)]
    dist.all_gather(compute_s, computing)
    compute_s = [c.item() for c in compute_s]

    # the buckets of the card, whatever those of the steps are
    of_net = workload(module, X[:1])
    caps = (int(args.bucket_mb * 2**20),)
    predicted = predict_step(of_net, args.batch_size, k, Device(1e12), Link(0.0, 1e9), caps=caps)
    buckets = [event.n_bytes for event in predicted.events if event.kind == "all_reduce"]
    small_s = median_all_reduce_s(4, 21)
    latency_s = small_s / messages
    large = 4 * max(buckets)
    bandwidth = share * large / max(median_all_reduce_s(large, 5) - small_s, 1e-9)
    tensors = [torch.zeros(n // 4, device=device()) for n in buckets]
    communication_s = slowest(seconds(lambda: [dist.all_reduce(tensor) for tensor in tensors], args.steps))

    if dist.get_rank() == 0:
        measured = Measured(step_s, compute_s, latency_s, bandwidth, communication_s)
        with open(args.out, "w") as file:
            file.write(measured.to_json())
        print(measured.to_json())
        if args.card:
            typical_s, link = statistics.median_low(compute_s), Link(latency_s, bandwidth)
            speed = Device(of_net.flops * args.batch_size / typical_s)
            prediction = predict_step(
                of_net, args.batch_size, k, speed, link, caps=caps, wait_s=max(compute_s) - typical_s
            )
            what = f"an MLP of {args.depth} layers of {args.width}, {args.batch_size} examples on each rank"
            with open(args.card, "w") as file:
                file.write(card_of_step(what, prediction, k, link).to_json())
    exit_rank()


if __name__ == "__main__":
    main()
