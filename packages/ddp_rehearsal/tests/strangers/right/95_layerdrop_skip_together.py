"""Layers dropped at random per rank (find_unused_parameters), non-finite batches skipped by all ranks together."""
import os
import random
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Encoder(nn.Module):
    def __init__(self, dim=12, depth=4, drop=0.25):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU()) for _ in range(depth))
        self.head, self.drop = nn.Linear(dim, 3), drop

    def forward(self, x):
        for block in self.blocks:
            if self.training and random.random() < self.drop:
                continue
            x = x + block(x)
        return self.head(x)


def somebody(flag, device):
    """True on every rank if it is true on any of them"""
    t = torch.tensor(float(flag), device=device)
    dist.all_reduce(t, op=dist.ReduceOp.MAX)
    return t.item() > 0


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    random.seed(100 + dist.get_rank())
    g = torch.Generator().manual_seed(0)
    x = torch.randn(96, 12, generator=g)
    y = x[:, :3].argmax(1)
    x[17, 5] = float("nan")
    dataset = TensorDataset(x, y)
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    model = DDP(Encoder().to(device), device_ids=[local_rank], find_unused_parameters=True)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    skipped = 0
    for epoch in range(7):
        sampler.set_epoch(epoch)
        model.train()
        for xb, yb in loader:
            loss = nn.functional.cross_entropy(model(xb.to(device)), yb.to(device))
            if somebody(not torch.isfinite(loss).item(), device):
                skipped += 1
                continue
            opt.zero_grad()
            loss.backward()
            opt.step()
    if dist.get_rank() == 0:
        print("skipped", skipped, "batches, last loss", loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
