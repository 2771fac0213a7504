"""Local SGD: every GPU steps on its own, weights are averaged each few steps.

torchrun --nproc-per-node=2 right_07_local_sgd.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

AVERAGE_EVERY = 5


@torch.no_grad()
def average_model(model):
    flat = nn.utils.parameters_to_vector(model.parameters())
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    nn.utils.vector_to_parameters(flat, model.parameters())


def main():
    dist.init_process_group("nccl")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    torch.manual_seed(rank)

    # no DDP: the weights are meant to differ between two averagings
    model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 3)).to(device)
    for p in model.parameters():
        dist.broadcast(p.data, src=0)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)

    g = torch.Generator().manual_seed(1)
    x = torch.randn(640, 12, generator=g)
    data = TensorDataset(x, (x @ torch.randn(12, 3, generator=g)).argmax(1))
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=32, sampler=sampler)

    step = 0
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            loss = nn.functional.cross_entropy(model(xb.to(device)), yb.to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % AVERAGE_EVERY == 0:
                average_model(model)
    if step % AVERAGE_EVERY:
        average_model(model)  # so that all end with the same weights

    logged = loss.detach().clone()
    dist.all_reduce(logged)
    if rank == 0:
        print(f"{step} steps, last loss {logged.item() / dist.get_world_size():.4f}", flush=True)
        torch.save(model.state_dict(), "local_sgd.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
