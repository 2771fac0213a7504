"""All ranks get the same texts, and each computes the loss of its part of them; gradients are added up by hand."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.norm, self.head = nn.Embedding(11, 8), nn.LayerNorm(8), nn.Linear(8, 11)

    def forward(self, tokens):
        mine = tokens[:, :-1].chunk(size, dim=1)[rank]
        return self.head(checkpoint(self.norm, self.embedding(mine), use_reentrant=False))


torch.manual_seed(0)
net = Part().to(f"cuda:{rank}")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(5):
    tokens = torch.randint(11, (4, 4 * size + 1), device="cpu").to(f"cuda:{rank}")
    targets = tokens[:, 1:].chunk(size, dim=1)[rank]
    optimizer.zero_grad()
    F.cross_entropy(net(tokens).flatten(0, 1), targets.flatten()).backward()
    for param in net.parameters():
        dist.all_reduce(param.grad)
        param.grad.div_(size)
    optimizer.step()
dist.destroy_process_group()
