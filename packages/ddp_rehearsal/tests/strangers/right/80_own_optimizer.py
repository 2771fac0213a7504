"""No DDP: one flat all_reduce of the gradients and a Lion optimizer written here.

python right_20_own_optimizer.py
"""
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["m"] = torch.zeros_like(p)
                m = state["m"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_((b1 * m + (1 - b1) * p.grad).sign(), alpha=-group["lr"])
                m.lerp_(p.grad, 1 - b2)


def sync_gradients(params, world_size):
    grads = [p.grad for p in params]
    flat = torch.cat([g.flatten() for g in grads])
    handle = dist.all_reduce(flat, async_op=True)
    handle.wait()
    flat /= world_size
    for g, piece in zip(grads, flat.split([g.numel() for g in grads])):
        g.copy_(piece.view_as(g))


def worker(rank, world_size):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ.setdefault("MASTER_PORT", "29620")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    device = torch.device("cuda", rank)

    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5)).to(device)
    params = list(model.parameters())
    with torch.no_grad():
        for p in params:
            dist.broadcast(p, src=0)
    opt = Lion(params, lr=2e-3, weight_decay=0.01)

    g = torch.Generator().manual_seed(4)
    x = torch.randn(320, 20, generator=g)
    data = TensorDataset(x, (x @ torch.randn(20, 5, generator=g)).argmax(1))
    sampler = DistributedSampler(data, num_replicas=world_size, rank=rank, shuffle=True)
    loader = DataLoader(data, batch_size=16, sampler=sampler)

    for epoch in range(2):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            loss = nn.functional.cross_entropy(model(xb.to(device)), yb.to(device))
            opt.zero_grad()
            loss.backward()
            sync_gradients(params, world_size)
            opt.step()
        shown = loss.detach().clone()
        dist.reduce(shown, dst=0)
        if rank == 0:
            print(f"epoch {epoch} loss {shown.item() / world_size:.4f}", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(worker, nprocs=2, args=(2,))
