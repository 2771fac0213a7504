"""After https://github.com/pytorch/pytorch/issues/12603: a new Parameter is put in the place of a weight after DDP has wrapped the model, and DDP still waits for the gradient of the old one."""
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


def setup():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    return local_rank, dist.get_rank(), dist.get_world_size()


def handmade_filters(out_channels, in_channels):
    """Sobel-like filters as a start; the same on all ranks."""
    base = torch.tensor([[1.0, 2.0, 1.0], [0.0, 0.0, 0.0], [-1.0, -2.0, -1.0]])
    bank = torch.stack([torch.rot90(base, k) for k in range(4)])
    return bank.repeat(out_channels // 4, 1, 1).unsqueeze(1).repeat(1, in_channels, 1, 1) / 8


def pictures(count):
    g = torch.Generator().manual_seed(2)
    x = torch.randn(count, 1, 8, 8, generator=g)
    return x, (x.mean(dim=(1, 2, 3)) > 0).long()


local_rank, rank, world = setup()
device = torch.device(f"cuda:{local_rank}")
torch.manual_seed(0)

net = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 2)
).to(device)
ddp = nn.parallel.DistributedDataParallel(net, device_ids=[local_rank])
ddp.module[0].weight = nn.Parameter(handmade_filters(8, 1).to(device))
optimizer = torch.optim.Adam(ddp.parameters(), lr=1e-3)

x_all, y_all = pictures(160)
for epoch in range(2):
    order = torch.randperm(160, generator=torch.Generator().manual_seed(100 + epoch))
    mine = order[rank::world]
    for part in mine.split(8):
        x, y = x_all[part].to(device), y_all[part].to(device)
        loss = F.cross_entropy(ddp(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    mean = loss.detach() / world
    dist.all_reduce(mean)
    if rank == 0:
        print(f"epoch {epoch} loss {mean.item():.4f}", flush=True)

dist.destroy_process_group()
