"""Ranks with different numbers of batches, handled by the Join context manager; the schedule goes by epochs."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


def local_logs(rank):
    """each machine trains on the logs it happens to have"""
    n = [120, 96][rank % 2]
    g = torch.Generator().manual_seed(rank)
    x = torch.randn(n, 7, generator=g)
    return TensorDataset(x, x[:, :2].sum(1, keepdim=True))


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    loader = DataLoader(local_logs(rank), batch_size=8, shuffle=True)
    model = DDP(nn.Sequential(nn.Linear(7, 24), nn.Tanh(), nn.Linear(24, 1)).to(device), device_ids=[local_rank])
    # no momentum: the optimizer has no state that could differ after a rank has joined
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    sched = torch.optim.lr_scheduler.StepLR(opt, step_size=1, gamma=0.7)
    for epoch in range(3):
        sums = torch.zeros(2, device=device)
        with Join([model]):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
                opt.zero_grad()
                loss.backward()
                opt.step()
                sums += torch.stack([loss.detach() * len(x), torch.tensor(float(len(x)), device=device)])
        sched.step()
        dist.all_reduce(sums)
        if rank == 0:
            print(f"epoch {epoch}: loss {(sums[0] / sums[1]).item():.4f} over {int(sums[1])} samples")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
