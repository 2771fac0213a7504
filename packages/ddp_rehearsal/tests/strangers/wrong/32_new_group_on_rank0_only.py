"""After https://github.com/pytorch/pytorch/issues/25390: dist.new_group() is called on rank 0 alone, but all ranks must enter every new_group call in the same order, so the next group does not fit together and hangs."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Groups:
    def __init__(self, rank, world_size):
        self.writers = None
        if rank == 0:
            self.writers = dist.new_group(ranks=[0])
        self.metrics = dist.new_group(ranks=list(range(world_size)))


def mean_over(group, value):
    value = value.detach().clone()
    dist.all_reduce(value, group=group)
    return value / dist.get_world_size(group)


def toy(count=128):
    g = torch.Generator().manual_seed(12)
    x = torch.rand(count, 9, generator=g)
    return TensorDataset(x, x.std(dim=1, keepdim=True))


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    groups = Groups(rank, world_size)

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(9, 18), nn.Tanh(), nn.Linear(18, 1)).cuda()
    ddp = nn.parallel.DistributedDataParallel(net, device_ids=[local_rank])
    optimizer = torch.optim.Adam(ddp.parameters(), lr=1e-2)

    data = toy()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for step, (x, y) in enumerate(loader):
            loss = nn.functional.mse_loss(ddp(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            shown = mean_over(groups.metrics, loss)
            if groups.writers is not None:
                print(f"epoch {epoch} step {step} loss {shown.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
