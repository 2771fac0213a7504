"""DistributedDataParallel: a sampler, a scheduler, an evaluation and a checkpoint by rank 0 between barriers."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def evaluate(net, loader, device):
    net.eval()
    with torch.no_grad():
        right = sum((net(X.to(device)).argmax(1) == y.to(device)).sum().item() for X, y in loader)
    net.train()
    return right


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--out", default="checkpoint.pt")
    args = parser.parse_args()
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(96, 8), torch.randint(0, 3, (96,)))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    test = DataLoader(data, batch_size=32)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3)).to(rank)
    model = DistributedDataParallel(net, device_ids=[rank])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    loss_fn = nn.CrossEntropyLoss()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for X, y in loader:
            X, y = X.to(rank), y.to(rank)
            optimizer.zero_grad()
            loss = loss_fn(model(X), y)
            loss.backward()
            optimizer.step()
        scheduler.step()
        if rank == 0:
            print(epoch, loss.item(), evaluate(net, test, rank))
            torch.save(model.module.state_dict(), args.out)
        dist.barrier()
    net.load_state_dict(torch.load(args.out, map_location=f"cuda:{rank}", weights_only=True))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
