"""After https://github.com/Azure/MS-AMP/pull/45: scaler.update() is missing after scaler.step(optimizer), so the second step fails."""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn, optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3)
        self.fc = nn.Linear(4 * 36, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        return self.fc(x.flatten(1))


def fake_mnist(n):
    g = torch.Generator().manual_seed(28)
    return TensorDataset(torch.rand(n, 1, 14, 14, generator=g), torch.randint(0, 10, (n,), generator=g))


def train(args, model, device, loader, optimizer, scaler, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        with torch.autocast(device_type="cuda", dtype=torch.float16):
            loss = F.cross_entropy(model(data), target)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
    loss = loss.detach().float()
    dist.all_reduce(loss, op=dist.ReduceOp.AVG)
    if dist.get_rank() == 0:
        print(f"Train epoch {epoch}: loss {loss.item():.4f}")


def main():
    parser = argparse.ArgumentParser(description="digits")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.5)
    args = parser.parse_args()

    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    device = torch.device("cuda", local_rank)
    torch.manual_seed(1)

    dataset = fake_mnist(128)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler)
    model = nn.parallel.DistributedDataParallel(Net().to(device), device_ids=[local_rank])
    optimizer = optim.Adadelta(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    scaler = torch.amp.GradScaler("cuda")
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        train(args, model, device, loader, optimizer, scaler, epoch)
        scheduler.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
