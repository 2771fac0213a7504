"""Several time series with an embedding per series, reduced from
https://github.com/sktime/pytorch-forecasting/issues/2293
(hash() of a string is different in every interpreter, so in every rank)
"""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

GROUPS = ["north", "south", "east", "west", "harbour", "airport", "centre", "campus"]


class Sales(Dataset):
    def __init__(self, n=96, window=6):
        g = torch.Generator().manual_seed(5)
        self.rows = []
        for i in range(n):
            name = GROUPS[i % len(GROUPS)]
            series = torch.randn(window, generator=g) + GROUPS.index(name)
            self.rows.append((name, series[:-1], series[-1:]))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        name, past, future = self.rows[i]
        return torch.tensor(hash(name) % 997), past, future


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.group = nn.Embedding(997, 4)
        self.net = nn.Sequential(nn.Linear(9, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, gid, past):
        return self.net(torch.cat([self.group(gid), past], dim=1))


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    data = Sales()
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = DDP(Forecaster().to(device), device_ids=[local_rank])
    optim = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for gid, past, future in loader:
            loss = nn.functional.mse_loss(model(gid.to(device), past.to(device)), future.to(device))
            optim.zero_grad()
            loss.backward()
            optim.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
