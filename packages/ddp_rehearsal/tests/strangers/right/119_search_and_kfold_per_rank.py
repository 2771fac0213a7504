"""Hyper-parameter search: every rank trains trials of its own (k folds each), nothing is averaged, scores are gathered."""
import itertools
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, Subset, TensorDataset

FOLDS, EPOCHS = 2, 2


def dataset():
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    return TensorDataset(x, (x[:, 0] + x[:, 1] > 0).long())


def fit_and_score(lr, width, train, test, device, seed):
    torch.manual_seed(seed)                       # a trial's result does not depend on the rank that runs it
    model = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 2)).to(device)
    opt = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(EPOCHS):
        model.train()
        for x, y in DataLoader(train, batch_size=8, shuffle=True):
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()
    model.eval()
    with torch.no_grad():
        hits = sum((model(x.to(device)).argmax(1).cpu() == y).sum().item() for x, y in DataLoader(test, batch_size=16))
    return hits / len(test)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    data = dataset()
    folds = torch.randperm(len(data), generator=torch.Generator().manual_seed(1)).chunk(FOLDS)
    grid = list(itertools.product([3e-2, 1e-2, 3e-3], [8, 32]))
    mine = {}
    for trial in range(rank, len(grid), world):
        scores = []
        for k in range(FOLDS):
            rest = torch.cat([f for j, f in enumerate(folds) if j != k])
            scores.append(fit_and_score(*grid[trial], Subset(data, rest.tolist()), Subset(data, folds[k].tolist()), device, seed=k))
        mine[trial] = sum(scores) / FOLDS
    gathered = [None] * world
    dist.all_gather_object(gathered, mine)
    results = {t: s for part in gathered for t, s in part.items()}
    best = max(results, key=results.get)
    if rank == 0:
        for t in sorted(results):
            print(f"lr {grid[t][0]:g} width {grid[t][1]}: {results[t]:.3f}")
        print("best:", grid[best])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
