"""Validation spread over the GPUs, reduced from
https://github.com/pytorch/pytorch/issues/25162
(101 validation images: the distributed sampler repeats one, and it is counted twice)
"""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def images(n, seed):
    x = torch.rand(n, 1, 6, 6, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, (x[:, 0, :3].mean((1, 2)) > x[:, 0, 3:].mean((1, 2))).long())


@torch.no_grad()
def accuracy(model, loader, device):
    model.eval()
    hits, seen = torch.zeros((), device=device), torch.zeros((), device=device)
    for x, y in loader:
        hits += (model(x.to(device)).argmax(1) == y.to(device)).sum()
        seen += len(y)
    dist.all_reduce(hits)
    dist.all_reduce(seen)
    return (hits / seen).item()


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    train_set, val_set = images(96, 0), images(101, 1)
    sampler = DistributedSampler(train_set, shuffle=True)
    loader = DataLoader(train_set, batch_size=8, sampler=sampler)
    val_loader = DataLoader(val_set, batch_size=16, sampler=DistributedSampler(val_set, shuffle=False))
    model = DDP(nn.Sequential(nn.Flatten(), nn.Linear(36, 16), nn.ReLU(), nn.Linear(16, 2)).to(device),
                device_ids=[local_rank])
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()
        acc = accuracy(model, val_loader, device)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: accuracy {acc:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
