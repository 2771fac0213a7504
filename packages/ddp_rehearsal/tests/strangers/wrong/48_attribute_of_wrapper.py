"""After https://github.com/lucidrains/imagen-pytorch/issues/209: an attribute of the network is asked of the DDP wrapper, which does not have it; it must be model.module.self_cond."""
import os
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Unet(nn.Module):
    def __init__(self, dim=12, self_cond=True):
        super().__init__()
        self.self_cond = self_cond
        self.net = nn.Sequential(nn.Linear(2 * dim + 1, 48), nn.SiLU(), nn.Linear(48, dim))

    def forward(self, noisy, sigma, guess=None):
        guess = torch.zeros_like(noisy) if guess is None else guess
        return self.net(torch.cat([noisy, guess, sigma], dim=1))


def diffusion_loss(unet, image):
    sigma = torch.rand(len(image), 1, device=image.device)
    noisy = image + sigma * torch.randn_like(image)
    guess = None
    if unet.self_cond and random.random() < 0.5:
        with torch.no_grad():
            guess = unet(noisy, sigma).detach()
    return nn.functional.mse_loss(unet(noisy, sigma, guess), image)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    device = torch.device("cuda", local_rank)

    torch.manual_seed(0)
    unet = DistributedDataParallel(Unet().to(device), device_ids=[local_rank])
    random.seed(0)
    torch.cuda.manual_seed(1000 + dist.get_rank())  # other noise on every rank
    optimizer = torch.optim.Adam(unet.parameters(), lr=1e-3)

    image = torch.rand(80, 12, generator=torch.Generator().manual_seed(2))
    data = TensorDataset(image)
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for (batch,) in loader:
            loss = diffusion_loss(unet, batch.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        mean = loss.detach()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {mean.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
