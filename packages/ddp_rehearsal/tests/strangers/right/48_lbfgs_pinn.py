"""Style: physics-informed network, L-BFGS with line search on all ranks in step, second derivatives by autograd.grad; after https://arxiv.org/abs/1711.10561"""
import math
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.autograd import grad
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_default_dtype(torch.float64)


class MLP(nn.Module):
    def __init__(self, layers=(1, 16, 16, 1)):
        super().__init__()
        mods = []
        for i, (a, b) in enumerate(zip(layers[:-1], layers[1:])):
            mods.append(nn.Linear(a, b))
            if i < len(layers) - 2:
                mods.append(nn.Tanh())
        self.net = nn.Sequential(*mods)

    def forward(self, x):
        return self.net(x)


class Poisson:
    """-u'' = pi^2 sin(pi x) on (-1, 1), u(-1) = u(1) = 0."""

    def __init__(self, rank, world, device, n_total=256):
        x = torch.linspace(-1, 1, n_total + 2)[1:-1]
        self.x = x[rank::world].reshape(-1, 1).to(device)  # this rank's collocation points
        self.bc = torch.tensor([[-1.0], [1.0]], device=device)
        self.world = world

    def loss(self, net):
        x = self.x.clone().requires_grad_(True)
        u = net(x)
        u_x, = grad(u.sum(), x, create_graph=True)
        u_xx, = grad(u_x.sum(), x, create_graph=True)
        residual = u_xx + math.pi ** 2 * torch.sin(math.pi * x)
        return residual.pow(2).mean() + 10.0 * net(self.bc).pow(2).mean()


def main():
    rank, world, local_rank = (int(os.environ[k]) for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    device = torch.device("cuda", local_rank)
    torch.manual_seed(1)
    net = DDP(MLP().to(device), device_ids=[local_rank])
    problem = Poisson(rank, world, device)

    # a few Adam steps first, as usual
    adam = torch.optim.Adam(net.parameters(), lr=5e-3)
    for _ in range(10):
        adam.zero_grad()
        problem.loss(net).backward()
        adam.step()

    lbfgs = torch.optim.LBFGS(net.parameters(), lr=1.0, max_iter=4, history_size=10, line_search_fn="strong_wolfe")
    evaluations = 0

    def closure():
        nonlocal evaluations
        evaluations += 1
        lbfgs.zero_grad()
        loss = problem.loss(net)
        loss.backward()  # DDP averages the gradient ...
        value = loss.detach()
        dist.all_reduce(value)  # ... and the line search must see the mean loss too, or ranks part ways
        return value / world

    for step in range(20):
        loss = lbfgs.step(closure)
        if rank == 0 and step % 5 == 0:
            print(f"step {step} loss {float(loss):.3e} after {evaluations} evaluations")
    counts = [None] * world
    dist.all_gather_object(counts, evaluations)
    assert len(set(counts)) == 1, counts
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
