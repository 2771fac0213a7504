"""Full-batch L-BFGS with line search: the closure returns the loss averaged over the ranks, so all decide alike."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


def points(n):
    """collocation points and data of a one-dimensional problem: u'' = -sin(x), u(0) = u(pi) = 0"""
    return torch.linspace(0, torch.pi, n).unsqueeze(1)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1)).to(device), device_ids=[local_rank])
    x = points(64)[rank::world].to(device)                  # equally many points on each rank
    ends = torch.tensor([[0.0], [torch.pi]], device=device)
    wanted = torch.sin(x)
    opt = torch.optim.LBFGS(model.parameters(), lr=1.0, max_iter=2, history_size=10, line_search_fn="strong_wolfe")

    def closure():
        opt.zero_grad()
        out = model(torch.cat([x, ends]))
        loss = (out[:-2] - wanted).pow(2).mean() + out[-2:].pow(2).mean()
        loss.backward()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        return mean / world

    for step in range(26):
        loss = opt.step(closure)
        if rank == 0 and step % 5 == 0:
            print(f"step {step} loss {float(loss):.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
