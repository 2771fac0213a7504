"""The GPUs have different numbers of batches; Join shadows the missing ones.

torchrun --nproc-per-node=2 right_06_join.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


def shard_of(rank):
    """Every site has its own file, of its own length."""
    g = torch.Generator().manual_seed(40 + rank)
    n = 96 + 48 * rank
    x = torch.randn(n, 8, generator=g)
    return TensorDataset(x, 2 * x[:, :1] - x[:, 3:4])


def main():
    dist.init_process_group("nccl")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    torch.manual_seed(0)

    data = shard_of(rank)
    shuffle = torch.Generator().manual_seed(7 + rank)
    loader = DataLoader(data, batch_size=16, shuffle=True, generator=shuffle)

    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)).to(device),
                device_ids=[local_rank])
    opt = torch.optim.SGD(model.parameters(), lr=0.05)

    for epoch in range(2):
        model.train()
        sums = torch.zeros(2, dtype=torch.float64, device=device)
        # average over the GPUs which still have data
        with Join([model], divide_by_initial_world_size=False):
            for x, y in loader:
                x, y = x.to(device), y.to(device)
                opt.zero_grad()
                loss = nn.functional.mse_loss(model(x), y)
                loss.backward()
                opt.step()
                sums[0] += loss.item() * len(x)
                sums[1] += len(x)
        # outside of Join: all ranks come here once an epoch
        dist.all_reduce(sums)
        if rank == 0:
            print(f"epoch {epoch} mean loss {(sums[0] / sums[1]).item():.4f} over {int(sums[1])} samples",
                  flush=True)

    # on leaving Join, DDP gave everybody the weights of the rank which had the most batches
    if rank == 0:
        torch.save(model.module.state_dict(), "join.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
