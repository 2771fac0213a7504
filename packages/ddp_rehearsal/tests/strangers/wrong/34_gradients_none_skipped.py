"""After https://github.com/deepspeedai/DeepSpeed/pull/291: the hand-written averaging skips parameters whose gradient is None, but which ones these are differs between the ranks, so the all_reduce calls do not match."""
import os

import torch
import torch.distributed as dist
from torch import nn


class TwoDomains(nn.Module):
    """One trunk and a head for each of two domains; a batch comes from one domain."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(10, 20), nn.ReLU())
        self.heads = nn.ModuleList([nn.Linear(20, 3), nn.Linear(20, 5)])

    def forward(self, x, domain):
        return self.heads[domain](self.trunk(x))


def buffered_allreduce(model):
    world_size = dist.get_world_size()
    for p in model.parameters():
        if p.grad is None:
            continue
        dist.all_reduce(p.grad)
        p.grad.div_(world_size)


def domain_batches(rank, world_size, steps, size=12):
    """Global batch b belongs to domain b % 2; each rank takes every world_size-th."""
    for step in range(steps):
        number = step * world_size + rank
        g = torch.Generator().manual_seed(number)
        domain = number % 2
        x = torch.randn(size, 10, generator=g)
        yield domain, x, x[:, : (3, 5)[domain]].argmax(dim=1)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", local_rank)

    torch.manual_seed(99)
    model = TwoDomains().to(device)
    for p in model.parameters():
        dist.broadcast(p.data, src=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    for step, (domain, x, y) in enumerate(domain_batches(rank, world_size, steps=20)):
        loss = nn.functional.cross_entropy(model(x.to(device), domain), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        buffered_allreduce(model)
        optimizer.step()
        if step % 5 == 0:
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            if rank == 0:
                print(f"step {step}: {mean.item() / world_size:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
