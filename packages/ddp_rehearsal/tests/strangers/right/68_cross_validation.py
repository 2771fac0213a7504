"""4-fold cross-validation, the folds are dealt out to the GPUs. Each fold is its own model.

torchrun --nproc-per-node=2 right_08_cross_validation.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, Subset, TensorDataset

FOLDS = 4


def train_fold(fold, data, perm, device):
    torch.manual_seed(fold)
    held_out = perm[fold::FOLDS]
    rest = [i for f in range(FOLDS) if f != fold for i in perm[f::FOLDS]]
    order = torch.Generator().manual_seed(fold)
    loader = DataLoader(Subset(data, rest), batch_size=24, shuffle=True, generator=order)

    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2)).to(device)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(1):
        for x, y in loader:
            opt.zero_grad()
            nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
            opt.step()

    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in DataLoader(Subset(data, held_out), batch_size=64):
            right += (model(x.to(device)).argmax(1).cpu() == y).sum().item()
    torch.save(model.state_dict(), f"fold{fold}.pt")  # one file per fold, one writer per file
    return right, len(held_out)


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)

    g = torch.Generator().manual_seed(0)
    x = torch.randn(241, 10, generator=g)
    data = TensorDataset(x, (x[:, 0] + 0.5 * x[:, 1] > 0).long())
    perm = torch.randperm(len(data), generator=g).tolist()  # the same on all ranks

    scores = {}
    for fold in range(rank, FOLDS, world):
        scores[fold] = train_fold(fold, data, perm, device)

    everything = [None] * world
    dist.all_gather_object(everything, scores)
    if rank == 0:
        merged = {k: v for part in everything for k, v in part.items()}
        for fold in sorted(merged):
            print(f"fold {fold}: {merged[fold][0] / merged[fold][1]:.4f}", flush=True)
        right = sum(v[0] for v in merged.values())
        n = sum(v[1] for v in merged.values())
        print(f"all {right / n:.4f} of {n}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
