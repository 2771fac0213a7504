"""Ranks that the script starts itself, by spawn; a port that it has looked for."""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def train(rank, world_size, port):
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(port))
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    torch.cuda.set_device(rank)
    torch.manual_seed(3)
    X = torch.randn(160, 7)
    data = TensorDataset(X, X.mean(1, keepdim=True))
    sampler = DistributedSampler(data)
    net = DistributedDataParallel(nn.Linear(7, 1).to(rank), device_ids=[rank])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for inputs, wanted in DataLoader(data, batch_size=16, sampler=sampler):
            optimizer.zero_grad()
            nn.functional.mse_loss(net(inputs.to(rank)), wanted.to(rank)).backward()
            optimizer.step()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as found:
        found.bind(("", 0))
        return found.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(train, args=(torch.cuda.device_count(), free_port()), nprocs=torch.cuda.device_count())
