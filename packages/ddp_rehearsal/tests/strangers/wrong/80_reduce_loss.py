"""Distributed segmentation-like training without DDP.

python wrong_20_reduce_loss.py
"""
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def net():
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 1))


def data():
    g = torch.Generator().manual_seed(12)
    x = torch.randn(320, 1, 8, 8, generator=g)
    return TensorDataset(x, (x[:, 0] > 0.3).long())


def train(gpu, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ.setdefault("MASTER_PORT", "29520")
    dist.init_process_group("nccl", rank=gpu, world_size=world_size)
    torch.cuda.set_device(gpu)

    torch.manual_seed(0)  # same initial weights everywhere
    model = net().cuda(gpu)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    dataset = data()
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=gpu)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)

    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            logits = model(x.cuda(gpu))
            loss = nn.functional.cross_entropy(logits, y.cuda(gpu))

            # the loss of the global batch
            dist.all_reduce(loss, op=dist.ReduceOp.SUM)
            loss = loss / world_size

            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if gpu == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)

    if gpu == 0:
        torch.save(model.state_dict(), "segmentation.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(train, args=(2,), nprocs=2)
