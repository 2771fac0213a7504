"""Conv net with SyncBatchNorm, tiny batches per GPU.

torchrun --nproc-per-node=2 right_14_syncbn.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


def images(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 4, (n,), generator=g)
    return TensorDataset(torch.randn(n, 1, 10, 10, generator=g) + y.view(-1, 1, 1, 1), y)


def build():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4))


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    torch.manual_seed(0)

    train, val = images(80, 0), images(51, 1)
    sampler = DistributedSampler(train, shuffle=True)
    loader = DataLoader(train, batch_size=4, sampler=sampler, drop_last=True)
    val_loader = DataLoader(Subset(val, list(range(rank, len(val), world))), batch_size=8)

    model = nn.SyncBatchNorm.convert_sync_batchnorm(build()).to(device)
    model = DDP(model, device_ids=[local_rank])
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    for epoch in range(2):
        model.train()
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()

        # the statistics are equal on all GPUs. The bare module, as the GPUs may have different
        # numbers of validation batches.
        model.eval()
        hits = torch.zeros(2, device=device)
        with torch.no_grad():
            for x, y in val_loader:
                hits[0] += (model.module(x.to(device)).argmax(1) == y.to(device)).sum()
                hits[1] += len(y)
        dist.all_reduce(hits)
        if rank == 0:
            print(f"epoch {epoch} acc {(hits[0] / hits[1]).item():.4f} on {int(hits[1])}", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
