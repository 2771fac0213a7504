"""EMA of the weights kept on every GPU, sharded validation of both models.

torchrun --nproc-per-node=2 right_01_ema_everywhere.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


def make(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 4, (n,), generator=g)
    return TensorDataset(torch.randn(n, 12, generator=g) + 3.0 * nn.functional.one_hot(y, 12), y)


@torch.no_grad()
def accuracy(model, loader, device):
    model.eval()
    hits = torch.zeros(2, dtype=torch.float64, device=device)
    for x, y in loader:
        hits[0] += (model(x.to(device)).argmax(1) == y.to(device)).sum()
        hits[1] += len(y)
    dist.all_reduce(hits)
    return (hits[0] / hits[1]).item()


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    torch.manual_seed(0)

    train, val = make(320, 0), make(101, 1)
    sampler = DistributedSampler(train, shuffle=True)
    loader = DataLoader(train, batch_size=16, sampler=sampler)
    # every validation sample exactly once: plain slices, nothing padded
    val_loader = DataLoader(Subset(val, range(rank, len(val), world)), batch_size=16)

    net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)
    model = DDP(net, device_ids=[local_rank])
    # all ranks have the same weights after every step, so every rank can keep its own copy
    ema = AveragedModel(model.module, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    for epoch in range(2):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in loader:
            opt.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
            opt.step()
            ema.update_parameters(model.module)
        acc = accuracy(model.module, val_loader, device)
        acc_ema = accuracy(ema, val_loader, device)
        if rank == 0:
            print(f"epoch {epoch} acc {acc:.4f} ema {acc_ema:.4f}", flush=True)

    if rank == 0:
        torch.save({"model": model.module.state_dict(), "ema": ema.module.state_dict()}, "ema.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
