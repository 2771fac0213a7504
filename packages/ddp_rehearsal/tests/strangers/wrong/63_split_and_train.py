"""Classifier with a held-out part of the data.

torchrun --nproc-per-node=2 wrong_03_split_and_train.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split


def make_data():
    g = torch.Generator().manual_seed(7)
    x = torch.randn(400, 20, generator=g)
    w = torch.randn(20, 4, generator=g)
    return TensorDataset(x, (x @ w).argmax(1))


def setup():
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    # different dropout masks on each GPU
    torch.manual_seed(42 + dist.get_rank())
    return local_rank


def main():
    local_rank = setup()
    device = torch.device(f"cuda:{local_rank}")

    data = make_data()
    train_set, val_set = random_split(data, [320, 80])

    train_sampler = DistributedSampler(train_set, shuffle=True, seed=0)
    train_loader = DataLoader(train_set, batch_size=16, sampler=train_sampler)
    val_sampler = DistributedSampler(val_set, shuffle=False)
    val_loader = DataLoader(val_set, batch_size=20, sampler=val_sampler)

    net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 4))
    net = DDP(net.to(device), device_ids=[local_rank])
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    criterion = nn.CrossEntropyLoss()

    for epoch in range(2):
        net.train()
        train_sampler.set_epoch(epoch)
        for x, y in train_loader:
            opt.zero_grad()
            loss = criterion(net(x.to(device)), y.to(device))
            loss.backward()
            opt.step()

        net.eval()
        stats = torch.zeros(2, device=device)
        with torch.no_grad():
            for x, y in val_loader:
                pred = net(x.to(device)).argmax(1)
                stats[0] += (pred == y.to(device)).sum()
                stats[1] += len(y)
        dist.all_reduce(stats)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: val acc {(stats[0] / stats[1]).item():.4f}", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
