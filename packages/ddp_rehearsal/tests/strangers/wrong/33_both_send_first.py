"""After https://github.com/NVIDIA/nccl/issues/479: both ranks first send and then receive, so each waits for the other to receive: a deadlock."""
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

BATCH, WIDTH = 64, 16384


class Embedder(nn.Module):
    """A wide random projection behind a small trained network."""

    def __init__(self):
        super().__init__()
        self.small = nn.Linear(8, 16)
        self.register_buffer("wide", torch.randn(16, WIDTH) / 4)

    def forward(self, x):
        return torch.tanh(self.small(x)) @ self.wide


def exchange(features, rank, world_size):
    """The neighbours swap features, to be used as further negatives."""
    theirs = torch.empty_like(features)
    dist.send(features, dst=(rank + 1) % world_size)
    dist.recv(theirs, src=(rank - 1) % world_size)
    return theirs


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(Embedder().cuda(), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.cuda.manual_seed(500 + rank)  # the noise below differs from rank to rank

    points = torch.randn(BATCH * 4 * world_size, 8, generator=torch.Generator().manual_seed(1))
    data = TensorDataset(points)
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=BATCH, sampler=sampler)

    for epoch in range(3):
        sampler.set_epoch(epoch)
        for (x,) in loader:
            x = x.cuda()
            first, second = model(torch.cat([x, x + 0.05 * torch.randn_like(x)])).chunk(2)
            negatives = exchange(second.detach().contiguous(), rank, world_size)
            pull = 1 - F.cosine_similarity(first, second, dim=1).mean()
            push = F.cosine_similarity(first, negatives, dim=1).clamp(min=0).mean()
            loss = pull + 0.1 * push
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print("epoch", epoch, "done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
