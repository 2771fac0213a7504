"""Knowledge distillation. The teacher isn't trained, so it isn't wrapped.

torchrun --nproc-per-node=2 right_03_distill.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    dist.init_process_group("nccl")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device(f"cuda:{local_rank}")

    # the seed is rank dependent on purpose (dropout), weights are made equal explicitly
    torch.manual_seed(10 + rank)
    teacher = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 5)).to(device)
    for t in teacher.state_dict().values():
        dist.broadcast(t, src=0)
    teacher.requires_grad_(False)
    teacher.eval()

    student = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 5))
    student = DDP(student.to(device), device_ids=[local_rank])
    opt = torch.optim.AdamW(student.parameters(), lr=5e-3)

    g = torch.Generator().manual_seed(3)
    data = TensorDataset(torch.randn(320, 16, generator=g))
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=16, sampler=sampler)

    T = 2.0
    for epoch in range(2):
        student.train()
        sampler.set_epoch(epoch)
        running = torch.zeros(1, device=device)
        for (x,) in loader:
            x = x.to(device)
            with torch.no_grad():
                target = F.softmax(teacher(x) / T, dim=1)
            loss = F.kl_div(F.log_softmax(student(x) / T, dim=1), target, reduction="batchmean") * T * T
            opt.zero_grad()
            loss.backward()
            opt.step()
            running += loss.detach()
        # all ranks have the same number of equal batches
        dist.all_reduce(running)
        mean = running.item() / (len(loader) * dist.get_world_size())
        if rank == 0:
            print(f"epoch {epoch} kd loss {mean:.4f}", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
