"""Validation-driven learning rate, reduced from
https://github.com/rmchurch/disruptcnn/issues/3
(ReduceLROnPlateau is stepped with the loss of the rank's own part of the validation set)
"""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


def make(n, seed):
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(seed))
    return x, (x[:, 0] > 0).long()


def validate(model, loader, device):
    model.eval()
    total = count = 0.0
    with torch.no_grad():
        for x, y in loader:
            total += nn.functional.cross_entropy(model(x.to(device)), y.to(device), reduction="sum").item()
            count += len(y)
    return total / count


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()

    train_set = TensorDataset(*make(64, 0))
    x, y = make(64, 1)
    y[32:] = 1 - y[32:]                   # the second half comes from another, much noisier machine
    per = len(x) // world
    val_loader = DataLoader(Subset(TensorDataset(x, y), range(rank * per, (rank + 1) * per)), batch_size=16)
    sampler = DistributedSampler(train_set, shuffle=True)
    loader = DataLoader(train_set, batch_size=8, sampler=sampler)

    model = DDP(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2)).to(device), device_ids=[local_rank])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    for epoch in range(8):
        sampler.set_epoch(epoch)
        model.train()
        for xb, yb in loader:
            loss = nn.functional.cross_entropy(model(xb.to(device)), yb.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        scheduler.step(validate(model, val_loader, device))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
