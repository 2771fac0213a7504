"""Diffusion with EMA: own noise on each rank, EMA kept by every rank, samples drawn by rank 0 while the other waits."""
import copy
import os
import tempfile
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

T = 20
betas = torch.linspace(1e-3, 0.2, T)
abar = torch.cumprod(1 - betas, 0)


class Eps(nn.Module):
    def __init__(self, dim=2, width=32):
        super().__init__()
        self.time = nn.Embedding(T, width)
        self.inp, self.out = nn.Linear(dim, width), nn.Sequential(nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, dim))

    def forward(self, x, t):
        return self.out(self.inp(x) + self.time(t))


class Writer:
    """a little like TensorBoard's"""

    def __init__(self, folder):
        self.file = open(os.path.join(folder, "events.txt"), "w")

    def add_scalar(self, tag, value, step):
        self.file.write(f"{step}\t{tag}\t{value}\n")
        self.file.flush()


@torch.no_grad()
def update_ema(ema, model, decay):
    for e, p in zip(ema.parameters(), model.parameters()):
        e.mul_(decay).add_(p, alpha=1 - decay)


@torch.no_grad()
def sample(net, n, device):
    x = torch.randn(n, 2, device=device)
    for t in reversed(range(T)):
        eps = net(x, torch.full((n,), t, device=device))
        x = (x - betas[t] / (1 - abar[t]).sqrt() * eps) / (1 - betas[t]).sqrt()
        if t:
            x = x + betas[t].sqrt() * torch.randn_like(x)
    return x


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.manual_seed(0 * dist.get_world_size() + rank)
    data = TensorDataset(torch.randn(96, 2, generator=torch.Generator().manual_seed(0)).sign() + 0.1)
    sampler = DistributedSampler(data, shuffle=True, seed=0)
    loader = DataLoader(data, batch_size=8, sampler=sampler, drop_last=True)
    model = DDP(Eps().to(device), device_ids=[local_rank])
    ema = copy.deepcopy(model.module).requires_grad_(False).eval()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 6))
    writer = Writer(tempfile.mkdtemp()) if rank == 0 else None
    step = 0
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for (x0,) in loader:
            x0 = x0.to(device)
            t = torch.randint(0, T, (len(x0),), device=device)
            a = abar.to(device)[t].unsqueeze(1)
            noise = torch.randn_like(x0)
            loss = nn.functional.mse_loss(model(a.sqrt() * x0 + (1 - a).sqrt() * noise, t), noise)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            update_ema(ema, model.module, decay=0.95)
            if writer and step % 3 == 0:
                writer.add_scalar("loss", loss.item(), step)
            step += 1
        if rank == 0:
            writer.add_scalar("sample_norm", sample(ema, 16, device).norm(dim=1).mean().item(), step)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
