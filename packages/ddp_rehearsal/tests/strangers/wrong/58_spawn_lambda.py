"""After https://github.com/Lightning-AI/pytorch-lightning/issues/1457: the model, which holds a lambda, is handed to mp.spawn, and the lambda cannot be pickled for the new processes."""
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class YourModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(7, 14)
        self.out = nn.Linear(14, 1)
        self.fn_error = lambda prediction, target: (prediction - target).abs().mean()

    def forward(self, x):
        return self.out(torch.relu(self.layer(x)))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ddp_train(gpu, world_size, port, model):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl", rank=gpu, world_size=world_size)
    ddp = DDP(model.cuda(gpu), device_ids=[gpu])
    optimizer = torch.optim.Adam(ddp.parameters(), lr=1e-2)

    x = torch.randn(128, 7, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(x, x.norm(dim=1, keepdim=True))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for features, target in loader:
            loss = ddp.module.fn_error(ddp(features.cuda(gpu)), target.cuda(gpu))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        dist.all_reduce(loss.detach_(), op=dist.ReduceOp.AVG)
        if gpu == 0:
            print("epoch", epoch, loss.item(), flush=True)
    dist.destroy_process_group()


def main():
    torch.manual_seed(0)
    world_size = torch.cuda.device_count()
    mp.spawn(ddp_train, nprocs=world_size, args=(world_size, free_port(), YourModel()))


if __name__ == "__main__":
    main()
