"""After https://github.com/horovod/horovod/issues/672: gradients are averaged by hand, but every rank starts with other random weights and nobody broadcasts those of rank 0, so the ranks train different models."""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def average_gradients(model):
    size = float(dist.get_world_size())
    for p in model.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
        p.grad /= size


class Digits(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3)
        self.fc = nn.Linear(6 * 6 * 6, 10)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).flatten(1))


def partition(rank):
    g = torch.Generator().manual_seed(55)
    images = torch.rand(128, 1, 8, 8, generator=g)
    labels = torch.randint(0, 10, (128,), generator=g)
    data = TensorDataset(images, labels)
    sampler = DistributedSampler(data, rank=rank, shuffle=True)
    return DataLoader(data, batch_size=16, sampler=sampler), sampler


def run(rank, local_rank):
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    torch.manual_seed(1234 + rank)  # noise for the augmentation shall differ
    model = Digits().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    loader, sampler = partition(rank)

    for epoch in range(5):
        sampler.set_epoch(epoch)
        epoch_loss = torch.zeros((), device=device)
        for images, labels in loader:
            images = images.to(device)
            images = images + 0.05 * torch.randn_like(images)
            loss = nn.functional.cross_entropy(model(images), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            average_gradients(model)
            optimizer.step()
            epoch_loss += loss.detach()
        dist.all_reduce(epoch_loss, op=dist.ReduceOp.AVG)
        if rank == 0:
            print("epoch", epoch, ":", epoch_loss.item() / len(loader), flush=True)


if __name__ == "__main__":
    dist.init_process_group("nccl")
    run(dist.get_rank(), int(os.environ["LOCAL_RANK"]))
    dist.destroy_process_group()
