"""WGAN-GP: two wrapped networks, two optimizers, three discriminator passes in one backward, generator every other step."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def mlp(i, h, o):
    return nn.Sequential(nn.Linear(i, h), nn.LeakyReLU(0.2), nn.Linear(h, h), nn.LeakyReLU(0.2), nn.Linear(h, o))


def gradient_penalty(disc, real, fake):
    eps = torch.rand(len(real), 1, device=real.device)
    mix = (eps * real + (1 - eps) * fake).requires_grad_(True)
    (grad,) = torch.autograd.grad(disc(mix).sum(), mix, create_graph=True)
    return ((grad.norm(2, dim=1) - 1) ** 2).mean()


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    gen = DDP(mlp(4, 16, 2).to(device), device_ids=[local_rank], broadcast_buffers=False)
    disc = DDP(mlp(2, 16, 1).to(device), device_ids=[local_rank], broadcast_buffers=False)
    opt_g = torch.optim.Adam(gen.parameters(), lr=1e-3, betas=(0.0, 0.9))
    opt_d = torch.optim.Adam(disc.parameters(), lr=2e-3, betas=(0.0, 0.9))
    angle = torch.rand(96, generator=torch.Generator().manual_seed(0)) * 6.28
    data = TensorDataset(torch.stack([angle.cos(), angle.sin()], 1))
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler, drop_last=True)
    torch.manual_seed(10 + dist.get_rank())         # own latent vectors on each rank
    step = 0
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for (real,) in loader:
            real = real.to(device)
            with torch.no_grad():
                fake = gen(torch.randn(len(real), 4, device=device))
            loss_d = disc(fake).mean() - disc(real).mean() + 10 * gradient_penalty(disc, real, fake)
            opt_d.zero_grad()
            loss_d.backward()
            opt_d.step()
            step += 1
            if step % 2 == 0:
                disc.requires_grad_(False)
                # the discriminator is not trained here, so its wrapper is not needed
                loss_g = -disc.module(gen(torch.randn(8, 4, device=device))).mean()
                opt_g.zero_grad()
                loss_g.backward()
                opt_g.step()
                disc.requires_grad_(True)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} d {loss_d.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
