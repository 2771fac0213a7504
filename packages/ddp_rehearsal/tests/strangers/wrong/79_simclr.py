"""SimCLR style training, negatives from all GPUs.

torchrun --nproc-per-node=2 wrong_19_simclr.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
        self.proj = nn.Linear(128, 32)

    def forward(self, x):
        return F.normalize(self.proj(self.body(x)), dim=1)


def gather(z):
    out = [torch.zeros_like(z) for _ in range(dist.get_world_size())]
    dist.all_gather(out, z)
    return torch.cat(out)


def nt_xent(z1, z2, temperature=0.2):
    """Every row of this GPU against the rows of all GPUs."""
    n = z1.shape[0]
    all1, all2 = gather(z1), gather(z2)
    labels = torch.arange(n, device=z1.device) + n * dist.get_rank()
    l12 = F.cross_entropy(z1 @ all2.t() / temperature, labels)
    l21 = F.cross_entropy(z2 @ all1.t() / temperature, labels)
    return (l12 + l21) / 2


def main():
    dist.init_process_group("nccl")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    torch.manual_seed(0)

    g = torch.Generator().manual_seed(8)
    data = TensorDataset(torch.randn(320, 32, generator=g))
    sampler = DistributedSampler(data, shuffle=True, drop_last=True)
    loader = DataLoader(data, batch_size=16, sampler=sampler, drop_last=True)

    model = DDP(Encoder().to(device), device_ids=[local_rank])
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    torch.manual_seed(100 + rank)  # own augmentations on each GPU

    for epoch in range(2):
        sampler.set_epoch(epoch)
        for (x,) in loader:
            x = x.to(device)
            views = torch.cat([x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x)])
            z1, z2 = model(views).chunk(2)
            loss = nt_xent(z1, z2)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
