"""Shards dealt out to the GPUs, reduced from
https://github.com/pytorch/pytorch/issues/141069
(three shards for two ranks: one rank has twice as many batches as the other)
"""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

SHARDS = ["part-000", "part-001", "part-002"]
ROWS = 40


def read_shard(name):
    g = torch.Generator().manual_seed(int(name.split("-")[1]))
    for _ in range(ROWS):
        x = torch.randn(6, generator=g)
        yield x, x.sum().unsqueeze(0)


class ShardedStream(IterableDataset):
    def __init__(self, rank, world_size):
        self.shards = SHARDS[rank::world_size]

    def __iter__(self):
        for shard in self.shards:
            yield from read_shard(shard)


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    loader = DataLoader(ShardedStream(rank, world), batch_size=8)
    model = DDP(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1)).cuda(), device_ids=[local_rank])
    opt = torch.optim.SGD(model.parameters(), lr=1e-2)
    for epoch in range(4):
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
            opt.zero_grad()
            loss.backward()
            opt.step()
        if rank == 0:
            print("epoch", epoch, "loss", loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
