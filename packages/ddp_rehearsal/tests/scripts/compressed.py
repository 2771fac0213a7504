"""PowerSGD, a communication hook whose sums are finished in callbacks."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
torch.manual_seed(2)
net = DistributedDataParallel(nn.Sequential(nn.Linear(20, 30), nn.GELU(), nn.Linear(30, 2)).cuda(), device_ids=[rank])
state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=4)
net.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
of_rank = torch.Generator().manual_seed(rank)
for _ in range(12):
    X = torch.randn(16, 20, generator=of_rank).cuda()
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(X), (X[:, 0] > 0).long()).backward()
    optimizer.step()
dist.destroy_process_group()
