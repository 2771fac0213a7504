"""Rank 0 prepares the data, the others wait; the model is compiled.

torchrun --nproc-per-node=2 right_25_prepare_compile.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

ROOT = "prepared_data"


def prepare():
    os.makedirs(ROOT, exist_ok=True)
    g = torch.Generator().manual_seed(13)
    x = torch.randn(320, 18, generator=g)
    y = (x @ torch.randn(18, 5, generator=g)).argmax(1)
    torch.save({"x": x, "y": y}, f"{ROOT}/train.pt")


def main():
    dist.init_process_group("nccl")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)

    if rank == 0:
        prepare()
    dist.barrier()
    blob = torch.load(f"{ROOT}/train.pt", map_location="cpu")
    data = TensorDataset(blob["x"], blob["y"])
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=16, sampler=sampler)

    torch.manual_seed(0)
    raw = nn.Sequential(nn.Linear(18, 64), nn.SiLU(), nn.Linear(64, 5)).to(device)
    # aot_eager: no kernels to build, the model is too small for it to matter
    model = DDP(torch.compile(raw, backend="aot_eager"), device_ids=[local_rank])
    opt = torch.optim.AdamW(model.parameters(), lr=5e-3)

    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()
        shown = loss.detach().clone()
        dist.all_reduce(shown)
        if rank == 0:
            print(f"epoch {epoch} loss {shown.item() / dist.get_world_size():.4f}", flush=True)

    if rank == 0:
        torch.save(raw.state_dict(), "compiled_raw.pt")  # the bare names, without _orig_mod.
    dist.barrier()
    raw.load_state_dict(torch.load("compiled_raw.pt", map_location=device))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
