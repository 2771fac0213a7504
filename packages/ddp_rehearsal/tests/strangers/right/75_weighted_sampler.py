"""Own distributed weighted sampler for rare classes, exact recall over all GPUs.

torchrun --nproc-per-node=2 right_15_weighted_sampler.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Sampler, Subset, TensorDataset


class DistributedWeightedSampler(Sampler):
    def __init__(self, weights, num_samples, rank, world, seed=0):
        self.weights = torch.as_tensor(weights, dtype=torch.double)
        self.per_rank = num_samples // world
        self.rank, self.world, self.seed, self.epoch = rank, world, seed, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.per_rank

    def __iter__(self):
        # one global draw, the same on all ranks, then each takes its own part of it
        g = torch.Generator().manual_seed(self.seed + self.epoch)
        draw = torch.multinomial(self.weights, self.per_rank * self.world, True, generator=g)
        return iter(draw[self.rank::self.world].tolist())


def make(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = (torch.rand(n, generator=g) < 0.1).long()
    return torch.randn(n, 8, generator=g) + 1.5 * y.unsqueeze(1), y


def gather_uneven(t):
    """Concatenation over the ranks of 1-d tensors with different lengths."""
    sizes = [torch.zeros(1, dtype=torch.long, device=t.device) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([len(t)], device=t.device))
    longest = max(int(s) for s in sizes)
    padded = torch.cat([t, t.new_zeros(longest - len(t))])
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded)
    return torch.cat([p[:int(s)] for p, s in zip(parts, sizes)])


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    torch.manual_seed(0)

    x, y = make(400, 0)
    xv, yv = make(133, 1)
    weights = 1.0 / torch.bincount(y).double()[y]
    sampler = DistributedWeightedSampler(weights, 320, rank, world)
    loader = DataLoader(TensorDataset(x, y), batch_size=16, sampler=sampler)
    mine = list(range(rank, len(xv), world))
    val_loader = DataLoader(Subset(TensorDataset(xv, yv), mine), batch_size=32)

    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2)).to(device),
                device_ids=[local_rank])
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)

    for epoch in range(2):
        sampler.set_epoch(epoch)
        model.train()
        for xb, yb in loader:
            opt.zero_grad()
            nn.functional.cross_entropy(model(xb.to(device)), yb.to(device)).backward()
            opt.step()
        model.eval()
        preds, labels = [], []
        with torch.no_grad():
            for xb, yb in val_loader:
                preds.append(model.module(xb.to(device)).argmax(1))
                labels.append(yb.to(device))
        preds, labels = gather_uneven(torch.cat(preds)), gather_uneven(torch.cat(labels))
        if rank == 0:
            recall = [(preds[labels == c] == c).float().mean().item() for c in range(2)]
            print(f"epoch {epoch} recall {recall[0]:.4f} {recall[1]:.4f} of {len(labels)}", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
