"""Early stopping: rank 0 decides on the global validation loss and tells the others.

torchrun --nproc-per-node=2 right_12_early_stop.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


def make(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, generator=g)
    return TensorDataset(x, x[:, :1] + 0.7 * torch.randn(n, 1, generator=g))


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    torch.manual_seed(0)

    train, val = make(64, 0), make(75, 1)
    sampler = DistributedSampler(train, shuffle=True)
    loader = DataLoader(train, batch_size=16, sampler=sampler)
    val_loader = DataLoader(Subset(val, list(range(rank, len(val), world))), batch_size=16)

    model = DDP(nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 1)).to(device),
                device_ids=[local_rank])
    opt = torch.optim.Adam(model.parameters(), lr=2e-2)
    best, bad, patience = float("inf"), 0, 2

    for epoch in range(10):
        model.train()
        sampler.set_epoch(epoch)
        for x, y in loader:
            opt.zero_grad()
            nn.functional.mse_loss(model(x.to(device)), y.to(device)).backward()
            opt.step()

        model.eval()
        sums = torch.zeros(2, dtype=torch.float64, device=device)
        with torch.no_grad():
            for x, y in val_loader:
                out = model.module(x.to(device))
                sums[0] += nn.functional.mse_loss(out, y.to(device), reduction="sum")
                sums[1] += len(x)
        dist.reduce(sums, dst=0)

        stop = torch.zeros(1, dtype=torch.int32, device=device)
        if rank == 0:
            val_loss = (sums[0] / sums[1]).item()
            print(f"epoch {epoch} val {val_loss:.4f}", flush=True)
            if val_loss < best - 1e-4:
                best, bad = val_loss, 0
                torch.save(model.module.state_dict(), "early_best.pt")
            else:
                bad += 1
            stop.fill_(int(bad >= patience))
        dist.broadcast(stop, src=0)
        if stop.item():
            break

    # rank 0 is past its last save when the others leave the barrier
    dist.barrier()
    model.module.load_state_dict(torch.load("early_best.pt", map_location=device))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
