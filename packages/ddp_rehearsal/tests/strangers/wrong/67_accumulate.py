"""Gradient accumulation with DDP, started with mp.spawn.

python wrong_07_accumulate.py
"""
import contextlib
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

ACCUM = 4


def run(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ.setdefault("MASTER_PORT", "29507")
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    torch.cuda.set_device(rank)
    torch.manual_seed(0)

    g = torch.Generator().manual_seed(5)
    x = torch.randn(640, 10, generator=g)
    y = x.sum(1, keepdim=True) + 0.1 * torch.randn(640, 1, generator=g)
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data, num_replicas=world_size, rank=rank, shuffle=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler)

    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1)).to(rank)
    model = DDP(model, device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    for epoch in range(2):
        sampler.set_epoch(epoch)
        optimizer.zero_grad()
        for batch_idx, (xb, yb) in enumerate(loader):
            # talk to the other GPUs only once per optimizer step
            sync = batch_idx % ACCUM == 0
            context = contextlib.nullcontext() if sync else model.no_sync()
            with context:
                loss = nn.functional.mse_loss(model(xb.to(rank)), yb.to(rank)) / ACCUM
                loss.backward()
            if (batch_idx + 1) % ACCUM == 0:
                optimizer.step()
                optimizer.zero_grad()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item() * ACCUM:.4f}", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(run, args=(2,), nprocs=2, join=True)
