"""Full batch LBFGS with DDP; the line search sees the global loss on every GPU.

torchrun --nproc-per-node=2 right_19_lbfgs.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    torch.manual_seed(0)

    g = torch.Generator().manual_seed(1)
    x = torch.rand(320, 2, generator=g) * 2 - 1
    y = torch.sin(3 * x[:, :1]) * x[:, 1:]
    # equal halves, so the mean of the means is the mean
    x, y = x[rank::world].to(device), y[rank::world].to(device)

    model = DDP(nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 1)).to(device),
                device_ids=[local_rank])
    opt = torch.optim.LBFGS(model.parameters(), lr=1.0, max_iter=5, history_size=10,
                            line_search_fn="strong_wolfe")

    def closure():
        opt.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        # all ranks take the same decisions only if they see the same number
        value = loss.detach().clone()
        dist.all_reduce(value)
        return value / world

    for it in range(4):
        loss = opt.step(closure)
        if rank == 0:
            print(f"iteration {it} loss before it {loss.item():.6f}", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
