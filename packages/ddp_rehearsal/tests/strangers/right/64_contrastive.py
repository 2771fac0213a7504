"""Contrastive learning over the global batch; gradients flow through the gather.

torchrun --nproc-per-node=2 right_04_contrastive.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class GatherLayer(torch.autograd.Function):
    """all_gather whose backward adds up what every rank wants for this rank's rows."""

    @staticmethod
    def forward(ctx, x):
        out = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(out, x.contiguous())
        return torch.stack(out)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad)
        return grad[dist.get_rank()]


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 16))
        self.b = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 16))
        self.logit_scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, xa, xb):
        return F.normalize(self.a(xa), dim=1), F.normalize(self.b(xb), dim=1), self.logit_scale.exp()


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    torch.manual_seed(0)

    g = torch.Generator().manual_seed(2)
    latent = torch.randn(320, 6, generator=g)
    xa = latent @ torch.randn(6, 24, generator=g)
    xb = latent @ torch.randn(6, 10, generator=g)
    data = TensorDataset(xa, xb)
    sampler = DistributedSampler(data, shuffle=True, drop_last=True)
    loader = DataLoader(data, batch_size=16, sampler=sampler, drop_last=True)

    model = DDP(TwoTower().to(device), device_ids=[local_rank])
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)

    for epoch in range(2):
        sampler.set_epoch(epoch)
        for a, b in loader:
            za, zb, scale = model(a.to(device), b.to(device))
            all_a = GatherLayer.apply(za).flatten(0, 1)
            all_b = GatherLayer.apply(zb).flatten(0, 1)
            # every rank computes its own rows against all columns. The global loss is the mean
            # over the ranks, which is the mean DDP takes of the gradients.
            labels = torch.arange(len(za), device=device) + rank * len(za)
            loss = (F.cross_entropy(scale * za @ all_b.t(), labels)
                    + F.cross_entropy(scale * zb @ all_a.t(), labels)) / 2
            opt.zero_grad()
            loss.backward()
            opt.step()
        shown = loss.detach().clone()
        dist.all_reduce(shown)
        if rank == 0:
            print(f"epoch {epoch} loss {shown.item() / world:.4f}", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
