"""After https://github.com/ziangcao0312/DiffTF/issues/3: the default device is set to CUDA for the whole program, and the sampler's randperm then meets its own CPU generator."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Rays(Dataset):
    def __init__(self, n=96):
        g = torch.Generator(device="cpu").manual_seed(0)
        self.origin = torch.rand(n, 3, generator=g, device="cpu")
        self.color = torch.rand(n, 3, generator=g, device="cpu")

    def __len__(self):
        return self.origin.shape[0]

    def __getitem__(self, i):
        return self.origin[i], self.color[i]


class Triplane(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(3, width), nn.Softplus(), nn.Linear(width, 3), nn.Sigmoid())

    def forward(self, origin):
        return self.mlp(origin)


def create_everything(local_rank):
    torch.manual_seed(10)
    net = Triplane()  # made on the GPU at once, as is every new tensor
    net = nn.parallel.DistributedDataParallel(net, device_ids=[local_rank])
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    dataset = Rays()
    sampler = DistributedSampler(dataset, shuffle=True)
    return net, optimizer, sampler, DataLoader(dataset, batch_size=12, sampler=sampler)


def train(local_rank):
    net, optimizer, sampler, loader = create_everything(local_rank)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for origin, color in loader:
            rgb = net(origin.to(local_rank))
            loss = (rgb - color.to(local_rank)).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        mean = loss.detach()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        if dist.get_rank() == 0:
            print(f"[{epoch}] {mean.item():.4f}", flush=True)


if __name__ == "__main__":
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    torch.set_default_device(f"cuda:{local_rank}")
    train(local_rank)
    dist.destroy_process_group()
