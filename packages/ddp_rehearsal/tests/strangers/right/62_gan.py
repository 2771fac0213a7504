"""A small GAN: generator and discriminator each in its own DDP with its own optimizer.

torchrun --nproc-per-node=2 right_02_gan.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

Z = 8


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 64), nn.LeakyReLU(0.2), nn.Linear(64, o))


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    device = torch.device("cuda", local_rank)

    torch.manual_seed(0)
    G = DDP(mlp(Z, 2).to(device), device_ids=[local_rank])
    D = DDP(mlp(2, 1).to(device), device_ids=[local_rank])
    opt_g = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.99))
    opt_d = torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.5, 0.99))

    g = torch.Generator().manual_seed(1)
    angle = 6.2832 * torch.rand(320, generator=g)
    data = TensorDataset(torch.stack([angle.cos(), angle.sin()], 1))
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=16, sampler=sampler, drop_last=True)

    # from here on each GPU draws its own noise
    torch.manual_seed(500 + rank)

    for epoch in range(2):
        sampler.set_epoch(epoch)
        for (real,) in loader:
            real = real.to(device)
            n = len(real)

            # discriminator: one forward of DDP on real and fake together
            with torch.no_grad():
                fake = G.module(torch.randn(n, Z, device=device))
            logits = D(torch.cat([real, fake]))
            target = torch.cat([torch.ones(n, 1, device=device), torch.zeros(n, 1, device=device)])
            loss_d = F.binary_cross_entropy_with_logits(logits, target)
            opt_d.zero_grad()
            loss_d.backward()
            opt_d.step()

            # generator: its gradients are averaged by its own DDP. The discriminator is only
            # passed through, so the bare module is used and gets no gradients.
            D.module.requires_grad_(False)
            logits = D.module(G(torch.randn(n, Z, device=device)))
            loss_g = F.binary_cross_entropy_with_logits(logits, torch.ones(n, 1, device=device))
            opt_g.zero_grad()
            loss_g.backward()
            opt_g.step()
            D.module.requires_grad_(True)

        logged = torch.stack([loss_d.detach(), loss_g.detach()])
        dist.all_reduce(logged)
        logged /= dist.get_world_size()
        if rank == 0:
            print(f"epoch {epoch} D {logged[0].item():.4f} G {logged[1].item():.4f}", flush=True)

    if rank == 0:
        torch.save({"G": G.module.state_dict(), "D": D.module.state_dict()}, "gan.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
