"""Saving with a barrier, reduced from
https://github.com/huggingface/transformers-bloom-inference/pull/40
(the barrier ended up inside the branch of rank 0, so the other ranks never come to it)
"""
import os
import tempfile
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    out_dir = tempfile.mkdtemp() if dist.get_rank() == 0 else None
    g = torch.Generator().manual_seed(0)
    x = torch.randn(96, 5, generator=g)
    dataset = TensorDataset(x, x.max(1, keepdim=True).values)
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1)).to(device), device_ids=[local_rank])
    opt = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            loss = nn.functional.mse_loss(model(xb.to(device)), yb.to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            torch.save(model.module.state_dict(), os.path.join(out_dir, f"epoch{epoch}.pt"))
            print("saved epoch", epoch, "loss", loss.item())
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
