"""ZeroRedundancyOptimizer, validation on rank 0 only, checkpoint with the collected state.

torchrun --nproc-per-node=2 right_22_zero.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def make(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (n,), generator=g)
    return TensorDataset(torch.randn(n, 9, generator=g) + 2.0 * nn.functional.one_hot(y, 9), y)


@torch.no_grad()
def validate(net, data, device):
    net.eval()
    right = 0
    for x, y in DataLoader(data, batch_size=32):
        right += (net(x.to(device)).argmax(1).cpu() == y).sum().item()
    net.train()
    return right / len(data)


def main():
    dist.init_process_group("nccl")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    torch.manual_seed(0)

    train, val = make(320, 0), make(77, 1)
    sampler = DistributedSampler(train, shuffle=True)
    loader = DataLoader(train, batch_size=16, sampler=sampler)

    net = nn.Sequential(nn.Linear(9, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 3))
    model = DDP(net.to(device), device_ids=[local_rank])
    opt = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=5e-3)

    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            opt.zero_grad()
            nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
            opt.step()
        # BatchNorm follows rank 0 in DDP, so rank 0's bare module is the one to look at
        if rank == 0:
            print(f"epoch {epoch} val acc {validate(model.module, val, device):.4f}", flush=True)
        dist.barrier()

    opt.consolidate_state_dict(to=0)  # all ranks
    if rank == 0:
        torch.save({"model": model.module.state_dict(), "opt": opt.state_dict()}, "zero.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
