"""A Horovod script: LeNet, twenty steps on shared minibatches, the weights saved by rank 0.

Chapter 6 runs it and compares; by hand, in book/, after `make horovod`:
../.horovod/bin/horovodrun --gloo -np 2 ../.horovod/bin/python scripts/horovod_lenet.py weights.pt
"""

import sys

import horovod.torch as hvd
import torch
import torch.nn.functional as F

from d2lite import LeNet


def make_batches(num_batches=20, batch_size=64):
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(num_batches, batch_size, 1, 28, 28, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 10, (num_batches, batch_size), generator=generator)
    return list(zip(X, y, strict=True))


def train_steps(hvd, net, batches, lr):
    device = next(net.parameters()).device
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=net.named_parameters())
    for X, y in batches:
        X_shard, y_shard = X.tensor_split(hvd.size())[hvd.rank()], y.tensor_split(hvd.size())[hvd.rank()]
        optimizer.zero_grad()
        F.cross_entropy(net(X_shard.to(device)), y_shard.to(device)).backward()
        optimizer.step()
    return torch.cat([param.detach().flatten() for param in net.parameters()]).cpu()


def in_different_orders():
    """Return the sums of two all-reduces that the ranks announce in different orders: names match them."""
    tensors = {"a": torch.tensor([1.0 + hvd.rank()]), "b": torch.tensor([10.0 + 10 * hvd.rank()])}
    order = ("a", "b") if hvd.rank() == 0 else ("b", "a")
    handles = {name: hvd.allreduce_async(tensors[name], name=name, op=hvd.Sum) for name in order}
    return {name: hvd.synchronize(handles[name]).item() for name in ("a", "b")}


def main():
    hvd.init()
    torch.set_num_threads(1)
    sums = in_different_orders()
    weights = train_steps(hvd, LeNet(seed=hvd.rank()).double(), make_batches(), lr=0.1)
    everyone = hvd.allgather(weights[None])
    apart = (everyone - weights).abs().max().item()
    if hvd.rank() == 0:
        torch.save(weights, sys.argv[1])
        print(f"Horovod on {hvd.size()} ranks: they differ by {apart:.0e}; sums in different orders: {sums}")


if __name__ == "__main__":
    main()
