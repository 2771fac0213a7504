"""Skipping bad batches, reduced from a review in
https://github.com/Project-MONAI/monai-physio/pull/137
(only the rank that met the bad sample skips its backward; the others wait in theirs)
"""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def build_data():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(96, 5, generator=g)
    y = x.sum(1, keepdim=True)
    x[17, 2] = float("inf")            # one broken recording
    return TensorDataset(x, y)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    dataset = build_data()
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1)).to(device), device_ids=[local_rank])
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(6):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            opt.zero_grad()
            loss = nn.functional.mse_loss(model(xb.to(device)), yb.to(device))
            if not torch.isfinite(loss):
                print(f"rank {dist.get_rank()}: non-finite loss in epoch {epoch}, skipping this batch")
                continue
            loss.backward()
            opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
