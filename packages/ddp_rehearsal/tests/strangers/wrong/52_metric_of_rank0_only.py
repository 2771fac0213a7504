"""After https://github.com/fastai/fastai/pull/3643: the metric is never gathered: rank 0 reports, and picks the best checkpoint by, the value on its own share of the data."""
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class AvgLoss:
    def reset(self):
        self.total, self.count = 0.0, 0

    def accumulate(self, loss, batch_size):
        self.total += loss.item() * batch_size
        self.count += batch_size

    @property
    def value(self):
        return self.total / self.count


class Recorder:
    def __init__(self, model):
        self.model, self.best = model, float("inf")
        self.path = os.path.join(tempfile.gettempdir(), f"best_{os.environ['MASTER_PORT']}.pt")

    def after_epoch(self, epoch, valid_loss):
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: valid_loss {valid_loss:.4f}", flush=True)
            if valid_loss < self.best:
                self.best = valid_loss
                torch.save(self.model.module.state_dict(), self.path)
        dist.barrier()


def sine(count, seed):
    x = 6 * torch.rand(count, 1, generator=torch.Generator().manual_seed(seed)) - 3
    return TensorDataset(x, x.sin())


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    torch.manual_seed(42)
    model = DDP(nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1)).cuda(), device_ids=[local_rank])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    train, valid = sine(128, 0), sine(64, 1)
    train_sampler = DistributedSampler(train)
    train_loader = DataLoader(train, batch_size=16, sampler=train_sampler)
    valid_loader = DataLoader(valid, batch_size=16, sampler=DistributedSampler(valid, shuffle=False))
    avg_loss, recorder = AvgLoss(), Recorder(model)

    for epoch in range(5):
        train_sampler.set_epoch(epoch)
        for x, y in train_loader:
            loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        avg_loss.reset()
        with torch.no_grad():
            for x, y in valid_loader:
                avg_loss.accumulate(nn.functional.mse_loss(model.module(x.cuda()), y.cuda()), len(x))
        recorder.after_epoch(epoch, avg_loss.value)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
