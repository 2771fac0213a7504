"""Denoiser that goes on after a restart, reduced from
https://github.com/radixark/miles/pull/3187
(the checkpoint holds rank 0's random state, and every rank restores it)
"""
import os
import tempfile
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def train(model, opt, loader, sampler, epochs, device):
    for epoch in epochs:
        sampler.set_epoch(epoch)
        for (x,) in loader:
            noise = torch.randn(x.shape) * 0.3
            x, noise = x.to(device), noise.to(device)
            loss = nn.functional.mse_loss(model(x + noise), noise)
            opt.zero_grad()
            loss.backward()
            opt.step()


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.manual_seed(7 + rank)
    data = TensorDataset(torch.randn(96, 8, generator=torch.Generator().manual_seed(0)))
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler, generator=torch.Generator().manual_seed(0))
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8)).to(device), device_ids=[local_rank])
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)

    path = [os.path.join(tempfile.mkdtemp(), "state.pt") if rank == 0 else None]
    dist.broadcast_object_list(path, src=0)
    path = path[0]

    train(model, opt, loader, sampler, range(0, 1), device)
    if rank == 0:
        torch.save({"model": model.module.state_dict(), "opt": opt.state_dict(), "epoch": 1,
                    "rng": torch.get_rng_state()}, path)
    dist.barrier()

    # the machine was taken away and given back: go on from the file
    state = torch.load(path, map_location="cpu")
    model.module.load_state_dict(state["model"])
    opt.load_state_dict(state["opt"])
    torch.set_rng_state(state["rng"])
    train(model, opt, loader, sampler, range(state["epoch"], 5), device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
