"""DDP with a bf16 compression hook for the gradients.

torchrun --nproc-per-node=2 wrong_25_comm_hook.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def compress_hook(group, bucket):
    """Send the gradients as bfloat16."""
    small = bucket.buffer().to(torch.bfloat16)
    work = dist.all_reduce(small, group=group, async_op=True)

    def decompress(fut):
        out = bucket.buffer()
        out.copy_(fut.value()[0])
        return out

    return work.get_future().then(decompress)


def main():
    dist.init_process_group("nccl")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    torch.manual_seed(0)

    g = torch.Generator().manual_seed(1)
    x = torch.randn(320, 16, generator=g)
    data = TensorDataset(x, x @ torch.randn(16, 1, generator=g))
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=16, sampler=sampler)

    model = DDP(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1)).to(device),
                device_ids=[local_rank])
    model.register_comm_hook(dist.group.WORLD, compress_hook)
    opt = torch.optim.SGD(model.parameters(), lr=0.02)

    for epoch in range(2):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            loss = nn.functional.mse_loss(model(xb.to(device)), yb.to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
