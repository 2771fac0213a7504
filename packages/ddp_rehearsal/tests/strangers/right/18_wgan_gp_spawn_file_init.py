"""Style: WGAN-GP with several critic steps, mp.spawn and file:// rendezvous; after https://arxiv.org/abs/1704.00028"""
import argparse
import os
import tempfile

import torch
import torch.autograd as autograd
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

parser = argparse.ArgumentParser()
parser.add_argument("--n_iters", type=int, default=12, help="number of generator steps")
parser.add_argument("--n_critic", type=int, default=3, help="number of critic steps per generator step")
parser.add_argument("--batch_size", type=int, default=16, help="batch size per gpu")
parser.add_argument("--latent_dim", type=int, default=8)
parser.add_argument("--lambda_gp", type=float, default=10.0)


def make_critic():
    return nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.LayerNorm(32), nn.Linear(32, 32), nn.LeakyReLU(0.2),
                         nn.Linear(32, 1))


def make_generator(latent_dim):
    return nn.Sequential(nn.Linear(latent_dim, 32), nn.BatchNorm1d(32), nn.LeakyReLU(0.2), nn.Linear(32, 2))


def compute_gradient_penalty(D, real_samples, fake_samples):
    """Calculates the gradient penalty loss for WGAN GP"""
    alpha = torch.rand(real_samples.size(0), 1, device=real_samples.device)
    interpolates = (alpha * real_samples + (1 - alpha) * fake_samples).requires_grad_(True)
    d_interpolates = D(interpolates)
    gradients = autograd.grad(outputs=d_interpolates, inputs=interpolates,
                              grad_outputs=torch.ones_like(d_interpolates),
                              create_graph=True, retain_graph=True, only_inputs=True)[0]
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean()


def moons(n, device):
    """Two half circles with noise."""
    t = torch.rand(n, device=device) * 3.14159
    side = torch.randint(0, 2, (n,), device=device).float() * 2 - 1
    xy = torch.stack([t.cos() + 0.5 * side, side * t.sin()], dim=1)
    return xy + 0.05 * torch.randn(n, 2, device=device)


def worker(rank, world_size, init_file, opt):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{init_file}", rank=rank, world_size=world_size)
    device = torch.device("cuda", rank)
    generator = DDP(make_generator(opt.latent_dim).to(device), device_ids=[rank])
    critic = DDP(make_critic().to(device), device_ids=[rank])
    torch.manual_seed(2024 + rank)  # samples and noise of its own on each rank
    optimizer_G = torch.optim.RMSprop(generator.parameters(), lr=5e-5)
    optimizer_D = torch.optim.RMSprop(critic.parameters(), lr=5e-5)

    for it in range(opt.n_iters):
        critic.requires_grad_(True)
        for _ in range(opt.n_critic):
            real = moons(opt.batch_size, device)
            with torch.no_grad():
                fake = generator(torch.randn(opt.batch_size, opt.latent_dim, device=device))
            d_loss = critic(fake).mean() - critic(real).mean()
            d_loss = d_loss + opt.lambda_gp * compute_gradient_penalty(critic, real, fake)
            optimizer_D.zero_grad()
            d_loss.backward()
            optimizer_D.step()

        critic.requires_grad_(False)
        g_loss = -critic(generator(torch.randn(opt.batch_size, opt.latent_dim, device=device))).mean()
        optimizer_G.zero_grad()
        g_loss.backward()
        optimizer_G.step()
        if rank == 0 and it % 4 == 0:
            print(f"[Iter {it}/{opt.n_iters}] [D loss: {d_loss.item():.4f}] [G loss: {g_loss.item():.4f}]")
    dist.destroy_process_group()


if __name__ == "__main__":
    opt = parser.parse_args()
    n = torch.cuda.device_count()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, args=(n, os.path.join(folder, "rendezvous"), opt), nprocs=n, join=True)
