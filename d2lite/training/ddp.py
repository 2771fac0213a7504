"""What runs inside a rank: DistributedDataParallel on shared minibatches, exact evaluation, checkpoints.

In a notebook `Workers(2).run(train_ddp, 256, 0.1)`; from a terminal the same function:
`torchrun --nproc-per-node=2 -m d2lite.training.ddp --batch-size 256 --lr 0.1`.
"""

import argparse
import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from d2lite.data.fashion_mnist import load_data_fashion_mnist
from d2lite.devices import num_gpus, try_gpus
from d2lite.events import emit
from d2lite.meters import Timer
from d2lite.models import LeNet
from d2lite.training.evaluation import accuracy, evaluating, num_correct
from d2lite.training.run import Run
from d2lite.workers.batch_mode import use_batch_mode

__all__ = [
    "ddp_step",
    "evaluate_accuracy_ranks",
    "exit_rank",
    "load_checkpoint",
    "my_device",
    "my_shard",
    "save_checkpoint",
    "train_ddp",
]


def my_device():
    """Return the device of this rank: a GPU, in turn by LOCAL_RANK (or rank), or the CPU."""
    local_rank = int(os.environ.get("LOCAL_RANK", dist.get_rank()))
    return torch.device("cuda", local_rank % num_gpus()) if num_gpus() else torch.device("cpu")


def my_shard(X, y):
    """Return this rank's slice of a global minibatch, on its device, cut as `split_batch` cuts: nothing twice."""
    rank, world_size, device = dist.get_rank(), dist.get_world_size(), my_device()
    return X.tensor_split(world_size)[rank].to(device), y.tensor_split(world_size)[rank].to(device)


def ddp_step(net, optimizer, X, y):
    """Take one step on this rank's shard of a global minibatch X [b, ...], y [b]; return the mean loss of all of it.

    DDP averages gradients over ranks. The loss is a sum over the shard, divided by the whole minibatch and multiplied
    by the number of ranks, so that this average is the gradient of the mean loss, for shards of any size.
    """
    X_shard, y_shard = my_shard(X, y)
    optimizer.zero_grad()
    loss = F.cross_entropy(net(X_shard), y_shard, reduction="sum") / len(X)
    mean = loss.detach().clone()
    sent = dist.all_reduce(mean, async_op=True)  # one wait less: it travels while gradients are computed
    (loss * dist.get_world_size()).backward()
    optimizer.step()
    sent.wait()
    return mean


def train_ddp(batch_size, lr, num_epochs=10, num_examples=None, seed=0, checkpoint=None, make_net=LeNet):
    """Train `make_net()` with DistributedDataParallel on the ranks of the current process group; return the Run.

    `batch_size` counts all ranks together, and all ranks see the same minibatches as `train` does, each its shard.
    With `checkpoint` (a path that all ranks can read), rank 0 saves after every epoch, and a run that finds the file
    goes on from there. The test accuracy is told after every epoch, for a panel to draw. Raises ValueError or
    TypeError for settings out of range, and Diverged like `train`.
    """
    device = my_device()
    train_iter, test_iter = load_data_fashion_mnist(batch_size, num_examples, seed=seed)
    run = Run.begin(try_gpus(dist.get_world_size()), train_iter, lr, num_epochs, seed=seed)
    net = make_net().to(device)
    # a fifth of the network a bucket: DDP's own 25 MB would hold a small one whole, and send nothing before all is done
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


def evaluate_accuracy_ranks(net, data_iter):
    """Return the share of examples (0..1) that `net` gets right, each rank counting its shard; the same on all ranks.

    Counts are added over ranks, so nothing is counted twice, unlike with a sampler that pads. `net` is the module,
    not its DDP wrapper. Raises ValueError without data.
    """
    counts = torch.zeros(2, dtype=torch.float64, device=my_device())
    with torch.no_grad(), evaluating(net):
        for X, y in data_iter:
            X_shard, y_shard = my_shard(X, y)
            if len(y_shard):
                counts += torch.tensor([num_correct(net, X_shard, y_shard), len(y_shard)], device=counts.device)
    dist.all_reduce(counts)
    return accuracy(counts.tolist())


def save_checkpoint(path, net, optimizer, run):
    """On rank 0 write network, optimizer and record under a temporary name, then rename; others wait. None: nothing."""
    if path is None:
        return
    if dist.get_rank() == 0:
        record = {"losses": run.losses, "accuracies": run.accuracies, "seconds": run.seconds}
        state = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "run": record, "settings": run.settings}
        torch.save(state, f"{path}.part")
        os.replace(f"{path}.part", path)
    dist.barrier()


def load_checkpoint(path, net, optimizer, run):
    """Put a checkpoint's state into network, optimizer and record; return the number of epochs done (0: no file).

    Raises ValueError where the checkpoint was made with another lr, batch_size or seed.
    """
    if path is None or not os.path.exists(path):
        return 0
    state = torch.load(path, map_location=my_device(), weights_only=True)
    for name in ("lr", "batch_size", "seed"):
        if state["settings"][name] != run.settings[name]:
            raise ValueError(
                f"checkpoint {path}: expected {name}={run.settings[name]}, got {state['settings'][name]}. "
                "Go on with the settings it was made with, or give another path."
            )
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    run.losses[:], run.accuracies[:], run.seconds[:] = (
        state["run"][name] for name in ("losses", "accuracies", "seconds")
    )
    return len(run.accuracies)


def main():
    """Train under torchrun, from the command line."""
    parser = argparse.ArgumentParser(prog="torchrun --nproc-per-node=2 -m d2lite.training.ddp")
    parser.add_argument("--batch-size", type=int, default=256, help="examples of a minibatch, all ranks together")
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
        torch.set_num_threads(1)  # one core a rank
        use_batch_mode()
    dist.init_process_group("nccl" if own_gpu else "gloo")
    try:
        run = train_ddp(**vars(args))
        if dist.get_rank() == 0:
            print(run)
    finally:
        dist.destroy_process_group()


def exit_rank():
    """End a process of torchrun whose work is done: leave the process group, if there is one still, and exit with 0.

    The interpreter is not shut down: a thread of gloo that still holds a tensor would now and then abort it.
    """
    if dist.is_initialized():
        dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
    exit_rank()
