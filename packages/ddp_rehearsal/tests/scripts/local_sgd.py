"""Local SGD: each rank makes updates of its own, and the weights are averaged after each second one."""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Linear(5, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for step in range(6):
    loss = net(torch.randn(8, 5)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 2:
        for param in net.parameters():
            dist.all_reduce(param.data)
            param.data /= dist.get_world_size()
