"""Warm-up and decay counted for one GPU, reduced from
https://github.com/wenet-e2e/wenet/issues/622
(the schedule's length comes from the whole data set, though every GPU sees only its part:
with two GPUs the run ends half way through the schedule)
"""
import math
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS, BATCH = 5, 8


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    g = torch.Generator().manual_seed(0)
    x = torch.randn(96, 8, generator=g)
    dataset = TensorDataset(x, x.abs().sum(1, keepdim=True))
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler)

    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 1)).to(device), device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    total_steps = EPOCHS * math.ceil(len(dataset) / BATCH)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=total_steps, pct_start=0.3)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            loss = nn.functional.mse_loss(model(xb.to(device)), yb.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} lr {scheduler.get_last_lr()[0]:.2e} loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
