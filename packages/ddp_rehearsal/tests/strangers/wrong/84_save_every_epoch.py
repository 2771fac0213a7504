"""Pretraining loop with a checkpoint and a csv line per epoch.

torchrun --nproc-per-node=2 wrong_24_save_every_epoch.py
"""
import csv
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def train_epoch(model, loader, opt, device):
    total = 0.0
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    return total / len(loader)


def main():
    ddp = int(os.environ.get("RANK", -1)) != -1
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    if ddp:
        dist.init_process_group("nccl")
    torch.manual_seed(0)

    g = torch.Generator().manual_seed(3)
    x = torch.randn(320, 30, generator=g)
    y = (x @ torch.randn(30, 6, generator=g)).argmax(1)
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data) if ddp else None
    loader = DataLoader(data, batch_size=16, sampler=sampler, shuffle=sampler is None)

    model = nn.Sequential(nn.Linear(30, 128), nn.ReLU(), nn.Linear(128, 6)).to(device)
    if ddp:
        model = DDP(model, device_ids=[local_rank])
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)

    os.makedirs("out_pretrain", exist_ok=True)
    for epoch in range(2):
        if ddp:
            sampler.set_epoch(epoch)
        loss = train_epoch(model, loader, opt, device)

        raw = model.module if ddp else model
        with open("out_pretrain/log.csv", "a", newline="") as f:
            csv.writer(f).writerow([epoch, f"{loss:.4f}"])
        torch.save({"epoch": epoch, "model": raw.state_dict(), "opt": opt.state_dict()},
                   "out_pretrain/last.pt")
        print(f"epoch {epoch} loss {loss:.4f}, checkpoint saved", flush=True)

    if ddp:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
