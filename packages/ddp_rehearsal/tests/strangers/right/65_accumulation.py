"""Gradient accumulation with no_sync, also right for the last, shorter group of batches.

torchrun --nproc-per-node=2 right_05_accumulation.py
"""
import contextlib
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

ACCUM = 4


def groups(loader, size):
    """Lists of up to `size` batches."""
    group = []
    for batch in loader:
        group.append(batch)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


def main():
    dist.init_process_group("nccl")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    torch.manual_seed(0)

    g = torch.Generator().manual_seed(5)
    x = torch.randn(480, 10, generator=g)
    y = x.sum(1, keepdim=True) + 0.1 * torch.randn(480, 1, generator=g)
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler, drop_last=True)  # 30 = 7 * 4 + 2

    model = DDP(nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1)).to(device),
                device_ids=[local_rank])
    opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)

    for epoch in range(2):
        sampler.set_epoch(epoch)
        steps = 0
        for group in groups(loader, ACCUM):
            opt.zero_grad()
            total = 0.0
            for i, (xb, yb) in enumerate(group):
                last = i == len(group) - 1
                with contextlib.nullcontext() if last else model.no_sync():
                    loss = nn.functional.mse_loss(model(xb.to(device)), yb.to(device)) / len(group)
                    loss.backward()
                total += loss.item()
            opt.step()
            steps += 1
        if rank == 0:
            print(f"epoch {epoch}: {steps} steps, last loss on this GPU {total:.4f}", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
