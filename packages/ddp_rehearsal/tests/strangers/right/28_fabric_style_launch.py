"""Style: a small Fabric: launch() starts the processes, setup() wraps, backward() and no_backward_sync(); in the manner of https://github.com/Lightning-AI/pytorch-lightning"""
import contextlib
import functools
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

def worker_init(global_rank, worker_id):
    torch.manual_seed(torch.initial_seed() + 1000 * (global_rank + 1))  # other noise in each rank's workers

class Fabric:
    def __init__(self, devices, precision="bf16-mixed"):
        self.world_size, self.precision = devices, precision

    def launch(self, fn, *args):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        mp.start_processes(self._entry, (fn, port, args), nprocs=self.world_size, start_method="spawn")

    def _entry(self, rank, fn, port, args):
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), LOCAL_RANK=str(rank),
                          WORLD_SIZE=str(self.world_size))
        self.global_rank = rank
        self.device = torch.device("cuda", rank)
        torch.cuda.set_device(self.device)
        dist.init_process_group("nccl")
        fn(self, *args)
        dist.destroy_process_group()

    def seed_everything(self, seed, workers=False):
        torch.manual_seed(seed)
        self.workers = workers
    def setup(self, module, optimizer):
        module = nn.parallel.DistributedDataParallel(module.to(self.device), device_ids=[self.device.index])
        return module, optimizer
    def setup_dataloaders(self, loader):
        init_fn = functools.partial(worker_init, self.global_rank) if self.workers else None
        sampler = DistributedSampler(loader.dataset, shuffle=True, seed=0)
        return DataLoader(loader.dataset, loader.batch_size, sampler=sampler, num_workers=loader.num_workers,
                          worker_init_fn=init_fn)
    def autocast(self):
        return torch.autocast("cuda", dtype=torch.bfloat16) if self.precision == "bf16-mixed" else contextlib.nullcontext()
    def no_backward_sync(self, module, enabled=True):
        return module.no_sync() if enabled else contextlib.nullcontext()
    def backward(self, loss):
        loss.backward()
    def all_reduce(self, value, reduce_op="mean"):
        value = value.detach().clone()
        dist.all_reduce(value)
        return value / self.world_size if reduce_op == "mean" else value
    def print(self, *args):
        if self.global_rank == 0:
            print(*args)

class NoisyLines(Dataset):
    """y = 3x - 1 with fresh noise at each read, drawn in the worker."""
    def __len__(self):
        return 640
    def __getitem__(self, i):
        x = torch.tensor([i / 320 - 1.0])
        return x, 3 * x - 1 + 0.1 * torch.randn(1)

def train(fabric, max_epochs=2, accumulate=2):
    fabric.seed_everything(7, workers=True)
    model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)  # .to() keeps the parameter objects
    model, optimizer = fabric.setup(model, optimizer)
    loader = fabric.setup_dataloaders(DataLoader(NoisyLines(), batch_size=8, num_workers=1))
    for epoch in range(max_epochs):
        loader.sampler.set_epoch(epoch)
        for i, (x, y) in enumerate(loader):
            x, y = x.to(fabric.device), y.to(fabric.device)
            is_accumulating = (i + 1) % accumulate != 0
            with fabric.no_backward_sync(model, enabled=is_accumulating):
                with fabric.autocast():
                    loss = nn.functional.mse_loss(model(x).float(), y)
                fabric.backward(loss / accumulate)
            if not is_accumulating:
                optimizer.step()
                optimizer.zero_grad()
        fabric.print(f"epoch {epoch} loss {fabric.all_reduce(loss).item():.4f}")

if __name__ == "__main__":
    Fabric(devices=torch.cuda.device_count()).launch(train)
