"""Training with an exponential moving average of the weights.

torchrun --nproc-per-node=2 wrong_21_ema.py
"""
import copy
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class ModelEMA:
    def __init__(self, model, decay=0.8):
        self.ema = copy.deepcopy(model).eval()
        self.decay = decay
        for p in self.ema.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for e, p in zip(self.ema.parameters(), model.parameters()):
            e.lerp_(p, 1.0 - self.decay)


def make(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 4, (n,), generator=g)
    return TensorDataset(torch.randn(n, 12, generator=g) + nn.functional.one_hot(y, 12) * 3.0, y)


@torch.no_grad()
def evaluate(model, loader, device):
    hits = torch.zeros(2, device=device)
    for x, y in loader:
        hits[0] += (model(x.to(device)).argmax(1) == y.to(device)).sum()
        hits[1] += len(y)
    dist.all_reduce(hits)
    return (hits[0] / hits[1]).item()


def main():
    dist.init_process_group("nccl")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    torch.manual_seed(0)

    train, val = make(320, 0), make(128, 1)
    sampler = DistributedSampler(train)
    loader = DataLoader(train, batch_size=16, sampler=sampler)
    val_loader = DataLoader(val, batch_size=32, sampler=DistributedSampler(val, shuffle=False))

    model = DDP(nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4)).to(device),
                device_ids=[local_rank])
    ema = ModelEMA(model.module)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)

    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()
            if rank in (-1, 0):
                ema.update(model.module)
        acc = evaluate(ema.ema, val_loader, device)
        if rank == 0:
            print(f"epoch {epoch} ema acc {acc:.4f}", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
