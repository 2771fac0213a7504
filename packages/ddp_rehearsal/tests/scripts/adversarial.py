"""Two networks and two optimizers, whose state is shared out (ZeRO stage 1), with different numbers of minibatches."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
torch.manual_seed(rank)
make = DDP(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 4)))
judge = DDP(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))
for_make = ZeroRedundancyOptimizer(make.parameters(), torch.optim.Adam, lr=1e-3)
for_judge = torch.optim.RMSprop(judge.parameters(), lr=1e-3)
loss_fn = nn.BCEWithLogitsLoss()
for _ in range(6):
    real, noise = torch.randn(8, 4), torch.randn(8, 3)
    for_judge.zero_grad()
    scores = judge(torch.cat([real, make(noise).detach()]))
    loss_fn(scores, torch.cat([torch.ones(8, 1), torch.zeros(8, 1)])).backward()
    for_judge.step()
    for_make.zero_grad()
    loss_fn(judge(make(noise)), torch.ones(8, 1)).backward()
    for_make.step()
net = DDP(nn.Linear(4, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
with Join([net]):
    for _ in range(2 + rank):
        optimizer.zero_grad()
        net(torch.randn(4, 4)).sum().backward()
        optimizer.step()
