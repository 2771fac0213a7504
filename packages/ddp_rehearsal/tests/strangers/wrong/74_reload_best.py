"""Keep the best weights and go back to them at the end of each round.

torchrun --nproc-per-node=2 wrong_14_reload_best.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

OUT = "round_ckpt"


def make(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 10, generator=g)
    return TensorDataset(x, (x[:, 0] * x[:, 1]).unsqueeze(1))


def main():
    dist.init_process_group("nccl")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    torch.manual_seed(0)
    path = os.path.join(OUT, "best.pt")
    if rank == 0:
        os.makedirs(OUT, exist_ok=True)
        if os.path.exists(path):
            os.remove(path)
    dist.barrier()

    train, val = make(320, 0), make(4000, 1)
    sampler = DistributedSampler(train)
    loader = DataLoader(train, batch_size=32, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 1)).to(device),
                device_ids=[local_rank])
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    best = float("inf")

    for rnd in range(3):
        sampler.set_epoch(rnd)
        model.train()
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()

        if rank == 0:
            model.eval()
            with torch.no_grad():
                errs = [nn.functional.mse_loss(model.module(x.to(device)), y.to(device)).item()
                        for x, y in DataLoader(val, batch_size=50)]
            val_loss = sum(errs) / len(errs)
            print(f"round {rnd} val {val_loss:.4f}", flush=True)
            if val_loss < best:
                best = val_loss
                torch.save(model.module.state_dict(), path)

        state = torch.load(path, map_location=device)
        model.module.load_state_dict(state)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
