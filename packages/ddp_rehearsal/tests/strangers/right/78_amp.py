"""fp16 with GradScaler, accumulation, clipping of the real gradients.

torchrun --nproc-per-node=2 right_18_amp.py
"""
import contextlib
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    dist.init_process_group("nccl")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    torch.manual_seed(0)

    g = torch.Generator().manual_seed(1)
    x = torch.randn(640, 24, generator=g)
    data = TensorDataset(x, (x @ torch.randn(24, 4, generator=g)).argmax(1))
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=16, sampler=sampler, drop_last=True)
    accum = 2
    assert len(loader) % accum == 0

    model = DDP(nn.Sequential(nn.Linear(24, 64), nn.GELU(), nn.Linear(64, 4)).to(device),
                device_ids=[local_rank])
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**12)

    for epoch in range(2):
        sampler.set_epoch(epoch)
        for i, (xb, yb) in enumerate(loader):
            boundary = (i + 1) % accum == 0
            with contextlib.nullcontext() if boundary else model.no_sync():
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = nn.functional.cross_entropy(model(xb.to(device)), yb.to(device)) / accum
                scaler.scale(loss).backward()
            if boundary:
                scaler.unscale_(opt)
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(opt)
                scaler.update()
                opt.zero_grad(set_to_none=True)
        shown = loss.detach().float() * accum
        dist.all_reduce(shown)
        if rank == 0:
            print(f"epoch {epoch} loss {shown.item() / dist.get_world_size():.4f} "
                  f"grad norm {norm.item():.3f} scale {scaler.get_scale():.0f}", flush=True)

    if rank == 0:
        torch.save({"model": model.module.state_dict(), "scaler": scaler.state_dict()}, "amp.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
