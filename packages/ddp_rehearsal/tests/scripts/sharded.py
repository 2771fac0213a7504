"""FSDP on the CPU: each rank holds a part of each parameter, and the data set is a stream of its own."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __init__(self, seed):
        self.seed = seed

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed)
        for _ in range(48):
            yield torch.randn(5, generator=generator), torch.zeros(2)


dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))
fully_shard(net, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
optimizer = torch.optim.Adam(net.parameters())
for X, y in DataLoader(Stream(dist.get_rank()), batch_size=8):
    nn.functional.mse_loss(net(X), y).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
