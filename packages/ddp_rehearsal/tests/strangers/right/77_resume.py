"""Train one epoch, throw everything away, resume from the checkpoint for the second.

torchrun --nproc-per-node=2 right_17_resume.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

CKPT = "resume_last.pt"
EPOCHS = 2


def dataset():
    g = torch.Generator().manual_seed(3)
    x = torch.randn(320, 14, generator=g)
    return TensorDataset(x, (x @ torch.randn(14, 4, generator=g)).argmax(1))


def run(stop_after, rank, local_rank):
    device = torch.device("cuda", local_rank)
    data = dataset()
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=16, sampler=sampler)

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(14, 64), nn.ReLU(), nn.Linear(64, 4)).to(device)
    opt = torch.optim.AdamW(net.parameters(), lr=5e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=EPOCHS * len(loader))
    start = 0
    if os.path.exists(CKPT):
        ckpt = torch.load(CKPT, map_location=device)
        net.load_state_dict(ckpt["model"])
        opt.load_state_dict(ckpt["opt"])
        sched.load_state_dict(ckpt["sched"])
        start = ckpt["epoch"] + 1
    model = DDP(net, device_ids=[local_rank])

    for epoch in range(start, stop_after):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            mean = mean.item() / dist.get_world_size()
            print(f"epoch {epoch} loss {mean:.4f} lr {sched.get_last_lr()[0]:.6f}", flush=True)
            torch.save({"model": net.state_dict(), "opt": opt.state_dict(),
                        "sched": sched.state_dict(), "epoch": epoch}, CKPT + ".tmp")
            os.replace(CKPT + ".tmp", CKPT)
        dist.barrier()


def main():
    dist.init_process_group("nccl")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    if rank == 0 and os.path.exists(CKPT):
        os.remove(CKPT)  # of an earlier demonstration
    dist.barrier()

    run(1, rank, local_rank)
    run(EPOCHS, rank, local_rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
