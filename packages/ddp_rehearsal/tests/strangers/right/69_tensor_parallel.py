"""Megatron-like MLP by hand: first layer split by columns, second one by rows.

torchrun --nproc-per-node=2 right_09_tensor_parallel.py
"""
import math
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Copy(torch.autograd.Function):
    """Identity forward, sum of the gradients backward."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad)
        return grad


class Reduce(torch.autograd.Function):
    """Sum forward, identity backward."""

    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


class ParallelMLP(nn.Module):
    def __init__(self, dim, hidden, rank, world):
        super().__init__()
        assert hidden % world == 0
        # the whole matrices are drawn with one seed, each rank keeps its part
        g = torch.Generator().manual_seed(123)
        w1 = torch.randn(hidden, dim, generator=g) / math.sqrt(dim)
        w2 = torch.randn(dim, hidden, generator=g) / math.sqrt(hidden)
        self.w1 = nn.Parameter(w1.chunk(world, 0)[rank].clone())
        self.b1 = nn.Parameter(torch.zeros(hidden // world))
        self.w2 = nn.Parameter(w2.chunk(world, 1)[rank].clone())
        self.b2 = nn.Parameter(torch.zeros(dim))  # replicated, added after the sum

    def forward(self, x):
        h = F.gelu(F.linear(Copy.apply(x), self.w1, self.b1))
        return Reduce.apply(F.linear(h, self.w2)) + self.b2


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)

    torch.manual_seed(0)  # replicated layers start equal
    model = nn.Sequential(nn.Linear(16, 32), ParallelMLP(32, 128, rank, world), nn.Linear(32, 4))
    model.to(device)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)

    # tensor parallel ranks work on the same batches
    g = torch.Generator().manual_seed(5)
    w = torch.randn(16, 4, generator=g)
    for step in range(20):
        x = torch.randn(64, 16, generator=g)
        y = (x @ w).argmax(1).to(device)
        loss = F.cross_entropy(model(x.to(device)), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 5 == 0 and rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)

    # one file per rank, the parts differ
    torch.save(model.state_dict(), f"mlp_tp{rank}of{world}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
