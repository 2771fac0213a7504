"""Gradients averaged by hand on the CPU, with gloo: weights are broadcast first, clipping comes after the reduction."""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
generator = torch.Generator().manual_seed(1)
examples, labels = torch.randn(64, 6, generator=generator), torch.randn(64, 1, generator=generator)
net = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))
for param in net.parameters():
    dist.broadcast(param.data, src=0)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for step in range(6):
    mine = torch.arange(64)[rank::world_size]
    mine = mine[torch.randperm(len(mine), generator=generator)][:8]
    net.zero_grad()
    loss = nn.functional.mse_loss(net(examples[mine]), labels[mine])
    loss.backward()
    for param in net.parameters():
        dist.all_reduce(param.grad)
        param.grad /= world_size
    nn.utils.clip_grad_norm_(net.parameters(), 0.05)
    optimizer.step()
    dist.all_reduce(loss.detach())
    if rank == 0:
        print(step, loss.item() / world_size)
