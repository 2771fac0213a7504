"""Train a small CNN on Fashion-MNIST with DistributedDataParallel: plain PyTorch, one process per GPU or per CPU core.

The data, once: python -c "from torchvision.datasets import FashionMNIST as F; F('data', download=True)"
One host:       torchrun --standalone --nproc-per-node=2 train_ddp.py
Two hosts:      torchrun --nnodes=2 --nproc-per-node=8 --node-rank=0 --master-addr=10.0.0.1 --master-port=29500 \
                    train_ddp.py      (on the second host --node-rank=1)
"""

import argparse
import contextlib
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


def make_net():
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 13 * 13, 10))


def make_dataset(args, train):
    if args.synthetic:  # each class is a pattern, each sample its pattern plus noise
        y = torch.randint(10, (args.synthetic,), generator=torch.Generator().manual_seed(1 + train))
        patterns, noise = torch.Generator().manual_seed(0), torch.Generator().manual_seed(3 + train)
        X = torch.randn(10, 1, 28, 28, generator=patterns)[y] + 2 * torch.randn(len(y), 1, 28, 28, generator=noise)
        return TensorDataset(X, y)
    from torchvision import datasets, transforms

    return datasets.FashionMNIST(args.data, train, transforms.ToTensor())


def train_step(net, optimizer, X, y, args):
    X_pieces, y_pieces = X.split(args.piece_size), y.split(args.piece_size)
    optimizer.zero_grad()
    for i, (X_piece, y_piece) in enumerate(zip(X_pieces, y_pieces, strict=True), start=1):
        # only the last piece sends; nullcontext is for a block that changes nothing
        with contextlib.nullcontext() if i == len(X_pieces) else net.no_sync():
            with torch.autocast(X.device.type, torch.bfloat16, enabled=args.bf16):
                y_hat = net(X_piece).float()
            (F.cross_entropy(y_hat, y_piece, reduction="sum") / len(X)).backward()  # the pieces add up to the mean
    nn.utils.clip_grad_norm_(net.parameters(), args.clip)  # after the all-reduce: all ranks have the same gradient
    optimizer.step()


@torch.no_grad()
def evaluate(net, dataset, device, args):
    shard = Subset(dataset, range(dist.get_rank(), len(dataset), dist.get_world_size()))  # no sample twice
    counts = torch.zeros(2, dtype=torch.int64, device=device)  # correct, all
    net.eval()
    for X, y in DataLoader(shard, 256, num_workers=args.num_workers):
        counts[0] += (net(X.to(device)).argmax(1) == y.to(device)).sum()
        counts[1] += len(y)
    net.train()
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def save(path, net, optimizer, epoch):
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, f"{path}.part")
    os.replace(f"{path}.part", path)  # a crash leaves the old file or the new one, never half of one


def load(path, net, optimizer):
    found = dist.get_rank() == 0 and path and os.path.exists(path)
    state = [torch.load(path, map_location="cpu", weights_only=True) if found else None]
    dist.broadcast_object_list(state)  # rank 0 reads for all: all ranks begin at the same epoch
    if state[0] is None:
        return 0
    net.load_state_dict(state[0]["net"])
    optimizer.load_state_dict(state[0]["optimizer"])
    return state[0]["epoch"]


@record
def main(argv=None):
    args, local_rank, cuda = parse(argv), int(os.environ["LOCAL_RANK"]), torch.cuda.is_available()
    device = torch.device("cuda", local_rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if args.batch_size % world_size:
        raise SystemExit(f"--batch-size: expected a multiple of {world_size} ranks, got {args.batch_size}.")
    torch.manual_seed(args.seed)
    module = make_net().to(device)
    optimizer = torch.optim.SGD(module.parameters(), lr=args.lr, momentum=0.9)
    first_epoch = load(args.checkpoint, module, optimizer)
    net = DistributedDataParallel(module, device_ids=[local_rank] if cuda else None)
    train_set, test_set = make_dataset(args, True), make_dataset(args, False)
    sampler = DistributedSampler(train_set, seed=args.seed, drop_last=True)
    generator, b = torch.Generator(), args.batch_size // world_size
    options = {"drop_last": True, "num_workers": args.num_workers, "generator": generator}
    loader = DataLoader(train_set, b, sampler=sampler, **options)
    for epoch in range(first_epoch, args.num_epochs):
        sampler.set_epoch(epoch)  # a new order, the same on all ranks
        seed = args.seed + epoch * world_size + rank  # one per rank and epoch, for random transforms
        generator.manual_seed(seed)
        torch.manual_seed(seed)
        for X, y in loader:
            train_step(net, optimizer, X.to(device), y.to(device), args)
        accuracy = evaluate(module, test_set, device, args)
        if rank == 0:
            print(f"epoch {epoch + 1}: test accuracy {accuracy:.4f} on {world_size} ranks", flush=True)
            if args.checkpoint:
                save(args.checkpoint, module, optimizer, epoch + 1)
    dist.barrier(device_ids=[local_rank] if cuda else None)  # no rank ends before rank 0 has saved
    del net  # it holds the group
    dist.destroy_process_group()


def parse(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="data", help="the folder that torchvision keeps FashionMNIST in")
    parser.add_argument("--synthetic", type=int, default=0, help="use so many made-up samples instead")
    parser.add_argument("--num-epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=256, help="samples per update, all ranks together")
    parser.add_argument("--piece-size", type=int, default=256, help="samples per backward pass of a rank")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--clip", type=float, default=1.0, help="the largest norm of the gradient")
    parser.add_argument("--bf16", action="store_true", help="compute the network in bfloat16")
    parser.add_argument("--num-workers", type=int, default=2, help="processes per rank that load data")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint", help="written by rank 0 after each epoch; an existing file is resumed")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
