"""Fine-tuning: the backbone is frozen during the first epoch.

torchrun --nproc-per-node=2 wrong_28_unfreeze.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        return self.head(self.backbone(x))


def main():
    dist.init_process_group("nccl")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    torch.manual_seed(0)

    g = torch.Generator().manual_seed(1)
    x = torch.randn(320, 16, generator=g)
    data = TensorDataset(x, (x @ torch.randn(16, 4, generator=g)).argmax(1))
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=16, sampler=sampler)

    net = Net().to(device)
    for p in net.backbone.parameters():
        p.requires_grad = False
    model = DDP(net, device_ids=[local_rank])
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    for epoch in range(2):
        if epoch == 1:
            for p in model.module.backbone.parameters():
                p.requires_grad = True
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            loss = nn.functional.cross_entropy(model(xb.to(device)), yb.to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)

    if rank == 0:
        torch.save(model.module.state_dict(), "finetuned.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
