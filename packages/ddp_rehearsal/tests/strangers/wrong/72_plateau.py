"""Lower the learning rate when the validation loss stops going down.

torchrun --nproc-per-node=2 wrong_12_plateau.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def regression(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 8, generator=g)
    y = torch.sin(x[:, :1]) + x[:, 1:2] + 1.0 * torch.randn(n, 1, generator=g)
    return TensorDataset(x, y)


def main():
    dist.init_process_group("nccl")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    torch.manual_seed(0)

    train, val = regression(128, 0), regression(40, 1)
    sampler = DistributedSampler(train)
    loader = DataLoader(train, batch_size=32, sampler=sampler)
    val_loader = DataLoader(val, batch_size=20, sampler=DistributedSampler(val, shuffle=False))

    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)).to(device),
                device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    scheduler = ReduceLROnPlateau(optimizer, mode="min", factor=0.3, patience=0)

    for epoch in range(10):
        model.train()
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        model.eval()
        val_loss = 0.0
        with torch.no_grad():
            for x, y in val_loader:
                val_loss += nn.functional.mse_loss(model(x.to(device)), y.to(device)).item()
        val_loss /= len(val_loader)
        scheduler.step(val_loss)
        if rank == 0:
            print(f"epoch {epoch} val {val_loss:.4f} lr {optimizer.param_groups[0]['lr']:.5f}",
                  flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
