"""After https://github.com/Lightning-AI/pytorch-lightning/issues/379: every rank decides by its own validation loss whether to stop, one leaves the loop and the others hang in the next all-reduce."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class ThresholdStopping:
    def __init__(self, threshold):
        self.threshold = threshold

    def __call__(self, value):
        return value < self.threshold


def linear_data(count, seed, noise):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 4, generator=g)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5], [3.0]])
    y[1::2] += noise * torch.randn(y[1::2].shape, generator=g)  # every second sensor is a bad one
    return TensorDataset(x, y)


@torch.no_grad()
def validate(model, loader, device):
    model.eval()
    errors = [(model.module(x.to(device)) - y.to(device)).square() for x, y in loader]
    model.train()
    return torch.cat(errors).mean().item()


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    device = torch.device("cuda", local_rank)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(4, 1).to(device), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.15)

    train_set, val_set = linear_data(64, 1, noise=0.3), linear_data(32, 2, noise=1.5)
    train_sampler = DistributedSampler(train_set, shuffle=True)
    val_sampler = DistributedSampler(val_set, shuffle=False)
    train_loader = DataLoader(train_set, batch_size=16, sampler=train_sampler)
    val_loader = DataLoader(val_set, batch_size=16, sampler=val_sampler)
    stop_now = ThresholdStopping(0.5)

    for epoch in range(15):
        train_sampler.set_epoch(epoch)
        for x, y in train_loader:
            loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        val_loss = validate(model, val_loader, device)
        if stop_now(val_loss):
            print(f"rank {dist.get_rank()} stops after epoch {epoch}", flush=True)
            break

    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
