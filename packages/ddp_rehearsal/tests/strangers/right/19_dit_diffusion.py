"""Style: class-conditional diffusion with EMA, rank-0 logger, checkpoint and barrier; modelled on https://github.com/facebookresearch/DiT/blob/main/train.py"""
import argparse, logging, os, tempfile
from collections import OrderedDict
from copy import deepcopy
from time import time
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
class DiT(nn.Module):
    def __init__(self, dim=16, num_classes=10, p_drop=0.1):
        super().__init__()
        self.y_embed, self.num_classes, self.p_drop = nn.Embedding(num_classes + 1, 32), num_classes, p_drop
        self.t_embed = nn.Sequential(nn.Linear(1, 32), nn.SiLU(), nn.Linear(32, 32))
        self.inp, self.out = nn.Linear(dim, 32), nn.Linear(32, dim)
        self.block = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
    def forward(self, x, t, y):
        if self.training:  # label dropout for classifier-free guidance
            y = torch.where(torch.rand(y.shape[0], device=y.device) < self.p_drop, self.num_classes, y)
        h = self.inp(x) + self.t_embed(t[:, None].float() / 1000) + self.y_embed(y)
        return self.out(h + self.block(h))
def fake_latents(n):
    g = torch.Generator().manual_seed(123)
    return TensorDataset(torch.randn(n, 16, generator=g), torch.randint(0, 10, (n,), generator=g))
@torch.no_grad()
def update_ema(ema_model, model, decay=0.9999):
    ema_params = OrderedDict(ema_model.named_parameters())
    for name, param in OrderedDict(model.named_parameters()).items():
        ema_params[name].mul_(decay).add_(param.data, alpha=1 - decay)
def create_logger(logging_dir):
    if dist.get_rank() == 0:  # real logger
        logging.basicConfig(level=logging.INFO, format='[%(asctime)s] %(message)s',
                            handlers=[logging.StreamHandler(), logging.FileHandler(f"{logging_dir}/log.txt")])
    logger = logging.getLogger(__name__)
    if dist.get_rank() != 0:  # dummy logger (does nothing)
        logger.addHandler(logging.NullHandler())
    return logger
def main(args):
    dist.init_process_group("nccl")
    assert args.global_batch_size % dist.get_world_size() == 0
    rank = dist.get_rank()
    device = rank % torch.cuda.device_count()
    torch.manual_seed(args.global_seed * dist.get_world_size() + rank)
    torch.cuda.set_device(device)
    results_dir = tempfile.mkdtemp() if rank == 0 else None  # only rank 0 writes
    logger = create_logger(results_dir)
    alphas_cumprod = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000, device=device), 0)
    model = DiT()
    ema = deepcopy(model).to(device).requires_grad_(False)
    model = DDP(model.to(device), device_ids=[device])
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0)
    sampler = DistributedSampler(dataset := fake_latents(640), rank=rank, shuffle=True, seed=args.global_seed)
    loader = DataLoader(dataset, batch_size=args.global_batch_size // dist.get_world_size(), shuffle=False,
                        sampler=sampler, num_workers=1, pin_memory=True, drop_last=True)
    update_ema(ema, model.module, decay=0)  # Ensure EMA is initialized with synced weights
    ema.eval()
    train_steps, log_steps, running_loss, start_time = 0, 0, 0, time()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            t, noise = torch.randint(0, 1000, (x.shape[0],), device=device), torch.randn_like(x)
            a = alphas_cumprod[t][:, None]
            loss = (model(a.sqrt() * x + (1 - a).sqrt() * noise, t, y) - noise).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            update_ema(ema, model.module)
            running_loss, log_steps, train_steps = running_loss + loss.item(), log_steps + 1, train_steps + 1
            if train_steps % args.log_every == 0:
                torch.cuda.synchronize()
                avg_loss = torch.tensor(running_loss / log_steps, device=device)
                dist.all_reduce(avg_loss, op=dist.ReduceOp.SUM)
                logger.info(f"(step={train_steps:07d}) Train Loss: {avg_loss.item() / dist.get_world_size():.4f}, "
                            f"Train Steps/Sec: {log_steps / (time() - start_time):.2f}")
                running_loss, log_steps, start_time = 0, 0, time()
            if train_steps % 20 == 0:
                if rank == 0:
                    torch.save({"model": model.module.state_dict(), "ema": ema.state_dict(), "args": vars(args)},
                               f"{results_dir}/{train_steps:07d}.pt")
                dist.barrier()
    dist.destroy_process_group()
if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--global-batch-size", type=int, default=32)
    parser.add_argument("--global-seed", type=int, default=0)
    parser.add_argument("--log-every", type=int, default=10)
    main(parser.parse_args())
