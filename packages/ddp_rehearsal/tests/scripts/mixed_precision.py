"""float16 with a GradScaler, workers that load augmented examples; the state on the CPU saved."""

import os
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Images(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.X, self.y = torch.rand(64, 1, 8, 8, generator=generator), torch.randint(3, (64,), generator=generator)

    def __len__(self):
        return len(self.X)

    def __getitem__(self, i):
        return (self.X[i].flip(-1) if random.random() < 0.5 else self.X[i]), self.y[i]


def main():
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    data = Images()
    sampler = DistributedSampler(data, drop_last=True)
    loader = DataLoader(data, 8, sampler=sampler, num_workers=1, persistent_workers=True)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)).cuda()
    model = DistributedDataParallel(net, device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**20)  # the first updates are left out
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for X, y in loader:
            optimizer.zero_grad(set_to_none=False)
            with torch.autocast("cuda", dtype=torch.float16):
                loss = nn.functional.cross_entropy(model(X.cuda()), y.cuda())
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
        if rank == 0:
            torch.save({name: t.cpu() for name, t in net.state_dict().items()}, "net.pt")
        dist.barrier()
        torch.load("net.pt", weights_only=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
