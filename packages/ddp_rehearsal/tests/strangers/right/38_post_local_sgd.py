"""Style: post-local SGD: hook, optimizer and periodic model averager of torch; modelled on the docstring of https://github.com/pytorch/pytorch/blob/main/torch/distributed/optim/post_localSGD_optimizer.py"""
import os

import torch
import torch.distributed as dist
import torch.distributed.algorithms.model_averaging.averagers as averagers
import torch.nn as nn
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.utils.data import DataLoader, Dataset

WARMUP, PERIOD, STEPS = 10, 4, 31  # the last step (number 30) is an averaging step


class RankStream(Dataset):
    """Sample i of rank r is sample r * n + i of the whole set."""

    def __init__(self, n, rank):
        self.n, self.offset = n, rank * n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.offset + i)
        x = torch.randn(10, generator=g)
        return x, torch.tanh(x[:2] - x[2:4])


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    rank = dist.get_rank()

    module = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 2)).cuda()
    model = nn.parallel.DistributedDataParallel(module, device_ids=[local_rank], output_device=local_rank)

    # After the warm-up every rank is a group of its own: gradients stay local between two averagings.
    subgroup, _ = dist.new_subgroups(group_size=1)
    state = PostLocalSGDState(process_group=None, subgroup=subgroup, start_localSGD_iter=WARMUP)
    model.register_comm_hook(state, post_localSGD_hook)

    local_optim = torch.optim.SGD(params=model.parameters(), lr=0.05)
    opt = PostLocalSGDOptimizer(optim=local_optim,
                                averager=averagers.PeriodicModelAverager(period=PERIOD, warmup_steps=WARMUP))
    loss_fn = nn.MSELoss()
    loader = DataLoader(RankStream(STEPS * 16, rank), batch_size=16, shuffle=True,
                        generator=torch.Generator().manual_seed(rank))
    for step, (x, y) in enumerate(loader):
        x, y = x.cuda(), y.cuda()
        opt.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        opt.step()
    if rank == 0:
        print(f"steps {step + 1}, loss {loss.item():.4f}")

    # the averaged models agree (up to rounding) at the end
    mine = torch.cat([p.detach().flatten() for p in model.parameters()])
    lo, hi = mine.clone(), mine.clone()
    dist.all_reduce(lo, op=dist.ReduceOp.MIN)
    dist.all_reduce(hi, op=dist.ReduceOp.MAX)
    assert torch.allclose(lo, hi, atol=1e-6)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
