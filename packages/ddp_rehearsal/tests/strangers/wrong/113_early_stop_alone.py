"""Early stopping, reduced from
https://github.com/Lightning-AI/pytorch-lightning/issues/379
(each rank judges by its own part of the validation set: one stops, the other goes on and waits for ever)
"""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


class EarlyStopping:
    def __init__(self, patience):
        self.best, self.bad, self.patience = float("inf"), 0, patience

    def __call__(self, value):
        if value < self.best:
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        return self.bad >= self.patience


def make(n, seed):
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(seed))
    return x, (x[:, 0] > 0).long()


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    train_set = TensorDataset(*make(64, 0))
    vx, vy = make(64, 1)
    vy[32:] = 1 - vy[32:]              # the second hospital labels the other way round
    per = len(vx) // world
    val_loader = DataLoader(Subset(TensorDataset(vx, vy), range(rank * per, (rank + 1) * per)), batch_size=16)
    sampler = DistributedSampler(train_set, shuffle=True)
    loader = DataLoader(train_set, batch_size=8, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2)).to(device), device_ids=[local_rank])
    opt = torch.optim.Adam(model.parameters(), lr=0.02)
    stopper = EarlyStopping(patience=2)
    for epoch in range(10):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()
        model.eval()
        with torch.no_grad():
            losses = [nn.functional.cross_entropy(model(x.to(device)), y.to(device)).item() for x, y in val_loader]
        if stopper(sum(losses) / len(losses)):
            print(f"rank {rank}: early stopping after epoch {epoch}")
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
