"""What runs inside a rank: DistributedDataParallel on the global minibatches, exact evaluation over ranks, checkpoints.

In a notebook `Workers(2).run(train_ddp, 256, 0.1)`; from a terminal the same function:
`torchrun --nproc-per-node=2 -m d2lite.training.ddp --batch-size 256 --lr 0.1`.
"""

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from d2lite.data.fashion_mnist import load_data_fashion_mnist
from d2lite.devices import describe, num_gpus, try_gpus
from d2lite.meters import Timer
from d2lite.models import LeNet
from d2lite.run_events import emit
from d2lite.training.evaluation import Batches, accuracy_of, evaluating, num_correct
from d2lite.training.run_record import Run
from notebook_ranks.batch_mode import use_batch_mode

__all__ = [
    "ddp_step", "describe_ranks", "evaluate_accuracy_ranks", "exit_rank", "load_checkpoint", "mean_over_ranks",
    "my_device", "my_shard", "save_checkpoint", "train_ddp",
]  # fmt: skip


def my_device() -> torch.device:
    """Return the device of this rank: GPU number LOCAL_RANK (or rank) modulo the number of GPUs, or the CPU."""
    local_rank = int(os.environ.get("LOCAL_RANK", dist.get_rank()))
    return torch.device("cuda", local_rank % num_gpus()) if num_gpus() else torch.device("cpu")


def describe_ranks() -> str:
    """Return the label of the devices of all ranks; of other machines it says only how many ranks they have."""
    k = dist.get_world_size()
    here = int(os.environ.get("LOCAL_WORLD_SIZE", k))
    return describe(try_gpus(here)) + (f", {k - here} on other machines" if here < k else "")


def my_shard(X: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return this rank's slices of a global minibatch, `X` [b, ...] and `y` [b], on its device.

    Rank i gets what `split_batch` would give device i: together the ranks have each example once. A slice is empty if b
    is less than the number of ranks.
    """
    rank, world_size, device = dist.get_rank(), dist.get_world_size(), my_device()
    return X.tensor_split(world_size)[rank].to(device), y.tensor_split(world_size)[rank].to(device)


def mean_over_ranks(loss: torch.Tensor) -> tuple[torch.Tensor, Any]:
    """Start an all-reduce of the mean of all ranks' losses, and return (mean, handle) without waiting for it.

    `mean` is right on every rank when `handle.wait()` has returned. `loss` is 0-d, and keeps its own graph.
    """
    mean = loss.detach() / dist.get_world_size()
    return mean, dist.all_reduce(mean, async_op=True)


def ddp_step(net: nn.Module, optimizer: torch.optim.Optimizer, X: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Take one step on this rank's shard of a global minibatch, and return the mean loss of the whole minibatch.

    DistributedDataParallel averages gradients over ranks. The loss is a sum over the shard, times the number of ranks,
    divided by b: so the average is the gradient of the mean loss, for shards of any sizes.

    Args:
        net: a module in DistributedDataParallel, with logits [b, classes] as its result.
        optimizer: the optimizer of the parameters of `net`.
        X, y: examples [b, ...] and labels [b], int64, the same on all ranks.

    The loss is a 0-d tensor from before the update, the same on all ranks. Raises RuntimeError if another rank fails,
    or does not take the step within the time-out of the process group.

    Example:
        Inside a rank, as a function for `Workers(2).run`:

        >>> def one_step():
        ...     net = DistributedDataParallel(LeNet())
        ...     optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        ...     X, y = torch.zeros(5, 1, 28, 28), torch.zeros(5, dtype=torch.int64)
        ...     return round(ddp_step(net, optimizer, X, y).item(), 4)
        >>> from d2lite import Workers
        >>> with Workers(2) as workers:
        ...     workers.run(one_step)
        [2.3026, 2.3026]
    """
    X_shard, y_shard = my_shard(X, y)
    optimizer.zero_grad()
    loss = F.cross_entropy(net(X_shard), y_shard, reduction="sum") * dist.get_world_size() / len(X)
    mean, work = mean_over_ranks(loss)  # this all-reduce overlaps the backward pass
    loss.backward()
    optimizer.step()
    work.wait()
    return mean


def train_ddp(
    batch_size: int,
    lr: float,
    num_epochs: int = 10,
    num_examples: int | None = None,
    seed: int = 0,
    checkpoint: str | None = None,
    make_net: Callable[[], nn.Module] = LeNet,
) -> Run:
    """Train `make_net()` with DistributedDataParallel on the ranks of the current process group, and return the Run.

    All ranks read the same minibatches as `train` does, and each computes its shard. After every epoch the test
    accuracy is also emitted as a point, for a panel to draw.

    Args:
        batch_size, lr, num_epochs, num_examples: as for `train`, with the same errors.
        seed: decides the order of the examples.
        checkpoint: a path that all ranks can read. Rank 0 saves after every epoch, and a run that finds the file
            continues from there. Raises ValueError if it was made with another lr, batch_size or seed.
        make_net: returns the network of a rank; DistributedDataParallel gives all ranks the values of rank 0.
    """
    device = my_device()
    train_iter, test_iter = load_data_fashion_mnist(batch_size, num_examples, seed=seed)
    devices = [device] * dist.get_world_size()
    run = Run.begin(devices, train_iter, lr, num_epochs, seed=seed)
    run.devices = describe_ranks()
    net = make_net().to(device)
    # a fifth of the network per bucket: with DDP's defaults, 1 MiB and then 25, a small one is sent whole, at the end
    bucket_cap_mb = min(25, sum(p.nbytes for p in net.parameters()) / 2**20 / 5)
    net = DistributedDataParallel(net, bucket_cap_mb=bucket_cap_mb)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    train_iter.epoch = load_checkpoint(checkpoint, net.module, optimizer, run)
    timer = Timer([device])
    for epoch in range(train_iter.epoch, num_epochs):
        timer.start()
        for X, y in train_iter:
            run.add_loss(ddp_step(net, optimizer, X, y))
        seconds = timer.stop()
        run.add_epoch(seconds, evaluate_accuracy_ranks(net.module, test_iter))
        save_checkpoint(checkpoint, net.module, optimizer, run)
        emit("point", names=["test accuracy"], x=[epoch + 1], y=[run.accuracy])
    return run.finish()


def evaluate_accuracy_ranks(net: nn.Module, data_iter: Batches) -> float:
    """Return the fraction of examples (0..1) that `net` classifies correctly, each rank counting its shard.

    Counts are added over ranks, so that nothing is counted twice, unlike with a sampler that pads; all ranks get the
    same result. `net` is the module without its wrapper, in evaluation mode until this returns. `data_iter` gives the
    same minibatches X [b, ...], y [b] on all ranks; without any a ValueError is raised.
    """
    counts = torch.zeros(2, dtype=torch.float64, device=my_device())
    with torch.no_grad(), evaluating(net):
        for X, y in data_iter:
            X_shard, y_shard = my_shard(X, y)
            if len(y_shard):
                counts += torch.tensor([num_correct(net, X_shard, y_shard), len(y_shard)], device=counts.device)
    dist.all_reduce(counts)
    return accuracy_of(counts.tolist())


def save_checkpoint(path: str | None, net: nn.Module, optimizer: torch.optim.Optimizer, run: Run) -> None:
    """On rank 0 write network, optimizer and curves under a temporary name, then rename it; all ranks wait for that."""
    if path is None:
        return
    if dist.get_rank() == 0:
        curves = {"losses": run.losses, "accuracies": run.accuracies, "seconds": run.seconds}
        state = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "run": curves, "settings": run.settings}
        torch.save(state, f"{path}.part")
        os.replace(f"{path}.part", path)
    dist.barrier()


def load_checkpoint(path: str | None, net: nn.Module, optimizer: torch.optim.Optimizer, run: Run) -> int:
    """Load a checkpoint into network, optimizer and run; return the epochs done, 0 without a path or a file."""
    if path is None or not os.path.exists(path):
        return 0
    state = torch.load(path, map_location=my_device(), weights_only=True)
    for name in ("lr", "batch_size", "seed"):
        if state["settings"][name] != run.settings[name]:
            raise ValueError(
                f"checkpoint {path}: expected {name}={run.settings[name]}, got {state['settings'][name]}. "
                "Resume with the settings it was made with, or give another path."
            )
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    run.losses[:], run.accuracies[:], run.seconds[:] = (
        state["run"][name] for name in ("losses", "accuracies", "seconds")
    )
    return len(run.accuracies)


def main() -> None:
    """Train under torchrun, from the command line."""
    parser = argparse.ArgumentParser(prog="torchrun --nproc-per-node=2 -m d2lite.training.ddp")
    parser.add_argument("--batch-size", type=int, default=256, help="examples per minibatch, all ranks together")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--num-epochs", type=int, default=2)
    parser.add_argument("--num-examples", type=int, default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint", default=None, help="a file all ranks can read; an existing one is resumed")
    args = parser.parse_args()
    if "RANK" not in os.environ:
        parser.error("expected to be started by torchrun, which sets RANK and WORLD_SIZE: see the usage line")
    own_gpu = num_gpus() >= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if own_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    else:
        torch.set_num_threads(1)  # one core per rank
        use_batch_mode()
    dist.init_process_group("nccl" if own_gpu else "gloo")
    try:
        run = train_ddp(**vars(args))
        if dist.get_rank() == 0:
            print(run)
    finally:
        dist.destroy_process_group()


def exit_rank() -> None:
    """End a process of torchrun whose work is done: leave the process group, if there is one, and exit with 0.

    The interpreter is not shut down: a thread of gloo that still holds a tensor would now and then abort it.
    """
    if dist.is_initialized():
        dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
    exit_rank()
