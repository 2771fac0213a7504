"""A contrastive loss over the rows of all ranks: the gathering passes gradients."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_gather
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--rows", type=int, default=12)
rows = parser.parse_args().rows
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
torch.manual_seed(8)
net = DistributedDataParallel(nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 5)).cuda(), device_ids=[rank])
optimizer = torch.optim.SGD(net.parameters(), lr=0.3)
common = torch.Generator().manual_seed(1)
for _ in range(6):
    X = torch.randn(rows * dist.get_world_size(), 6, generator=common)[rank * rows : (rank + 1) * rows].cuda()
    one, other = nn.functional.normalize(net(torch.cat([X, X + 0.2]))).chunk(2)
    one, other = torch.cat(all_gather(one)), torch.cat(all_gather(other))
    loss = nn.functional.cross_entropy(5 * one @ other.T, torch.arange(len(one), device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
