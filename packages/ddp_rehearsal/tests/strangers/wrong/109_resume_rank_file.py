"""Automatic resume, reduced from
https://github.com/intelligent-machine-learning/dlrover/pull/1034
(only rank 0 saves, as rank_0.pt, but every rank looks for a file of its own number: only rank 0 resumes)
"""
import os
import tempfile
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def fit(ckpt_dir, last_epoch, device, local_rank):
    """one launch of the job: resume if there is something to resume from, then train"""
    rank = dist.get_rank()
    g = torch.Generator().manual_seed(0)
    x = torch.randn(96, 7, generator=g)
    dataset = TensorDataset(x, x.prod(1, keepdim=True).sign())
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)

    model = DDP(nn.Sequential(nn.Linear(7, 32), nn.Tanh(), nn.Linear(32, 1)).to(device), device_ids=[local_rank])
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    start = 0
    path = os.path.join(ckpt_dir, f"rank_{rank}.pt")
    if os.path.exists(path):
        ckpt = torch.load(path, map_location=device)
        model.module.load_state_dict(ckpt["model"])
        opt.load_state_dict(ckpt["optimizer"])
    marker = os.path.join(ckpt_dir, "epoch.txt")
    if os.path.exists(marker):
        start = int(open(marker).read())

    for epoch in range(start, last_epoch):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            loss = nn.functional.mse_loss(model(xb.to(device)), yb.to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()
    if rank == 0:
        torch.save({"model": model.module.state_dict(), "optimizer": opt.state_dict()}, path)
        with open(marker, "w") as f:
            f.write(str(last_epoch))
    dist.barrier()


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    box = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(box, src=0)
    fit(box[0], 1, device, local_rank)      # first launch, preempted after an epoch
    fit(box[0], 5, device, local_rank)      # second launch
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
