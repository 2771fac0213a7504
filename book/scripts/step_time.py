"""Seconds per step of two networks on the ranks of this job, with and without communication; for torchrun.

`torchrun --nproc-per-node=2 book/scripts/step_time.py --out step_time.json`. The step is that of `train_ddp`, the
function of chapter 5; rank 0 writes the figures as JSON.
"""

import argparse
import contextlib
import datetime
import json
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from d2lite import LeNet, load_data_fashion_mnist, synchronize
from d2lite.training import exit_rank, my_device, my_shard, train_ddp

__all__ = ["NETS", "mlp"]

TIMEOUT_S = 60


def mlp():
    """Return a network with many parameters and little to compute: 784-512-512-10."""
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    )


NETS = {"LeNet": (LeNet, 8), "MLP": (mlp, 4)}  # and the minibatches of an epoch


def alone(make_net, batch_size, num_examples):
    """Return (seconds per step without any communication, on the slowest rank; bytes of the gradients; buckets)."""
    module = make_net().to(my_device())
    n_bytes = sum(p.nbytes for p in module.parameters())
    net = DistributedDataParallel(module, bucket_cap_mb=min(25, n_bytes / 2**20 / 5))  # the buckets of train_ddp
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    train_iter, _ = load_data_fashion_mnist(batch_size, num_examples)
    for synchronised in (True, True, True, False, False):  # the first steps settle the buckets, then a warm-up
        times = []
        dist.barrier()
        start = time.perf_counter()
        with contextlib.nullcontext() if synchronised else net.no_sync():
            for X, y in train_iter:
                X_shard, y_shard = my_shard(X, y)
                optimizer.zero_grad()
                F.cross_entropy(net(X_shard), y_shard).backward()
                optimizer.step()
                synchronize([my_device()])
                times.append(time.perf_counter() - start)
                start = time.perf_counter()
                if synchronised:
                    break
    slowest = torch.tensor(statistics.median(times))
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    buckets = net._get_ddp_logging_data().get("rebuilt_bucket_sizes", "").split(",")
    return slowest.item(), n_bytes, len(buckets)


def small_all_reduce(rounds=20):
    """Return the median seconds of an all-reduce of one number: latency and nothing else."""
    times, number = [], torch.zeros(1)
    for _ in range(rounds):
        start = time.perf_counter()
        dist.all_reduce(number)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main():
    """Measure under torchrun."""
    parser = argparse.ArgumentParser(prog="torchrun --nproc-per-node=2 book/scripts/step_time.py")
    parser.add_argument("--out", required=True, help="the file to write; rank 0 writes it")
    parser.add_argument("--batch-size", type=int, default=256, help="examples of a minibatch, all ranks together")
    parser.add_argument("--num-epochs", type=int, default=3, help="the first warms up")
    parser.add_argument("--nets", nargs="+", choices=NETS, default=list(NETS))
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=TIMEOUT_S))
    record = {"world_size": dist.get_world_size(), "batch_size": args.batch_size, "nets": {}}
    record["small_all_reduce_s"] = small_all_reduce()
    for name in args.nets:
        make_net, steps = NETS[name]
        num_examples = steps * args.batch_size
        compute_s, n_bytes, buckets = alone(make_net, args.batch_size, num_examples)
        run = train_ddp(args.batch_size, 0.01, args.num_epochs, num_examples, make_net=make_net)
        record["dataset"] = run.dataset
        record["nets"][name] = {
            "n_bytes": n_bytes,
            "all_reduces": buckets + 1,  # one per bucket, and one for the loss
            "compute_s": compute_s,
            "step_s": [seconds / steps for seconds in run.seconds[1:]],
        }
    if dist.get_rank() == 0:
        with open(args.out, "w") as file:
            json.dump(record, file)
    exit_rank()


if __name__ == "__main__":
    main()
