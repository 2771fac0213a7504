"""Pretrain a backbone, then fine-tune it on a second task.

torchrun --nproc-per-node=2 wrong_13_finetune.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

CKPT = "pretrained_backbone.pt"


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.head = nn.Linear(64, classes)

    def forward(self, x):
        return self.head(self.backbone(x))


def task(n, classes, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 16, generator=g)
    return TensorDataset(x, (x @ torch.randn(16, classes, generator=g)).argmax(1))


def fit(model, data, local_rank, lr):
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    opt = torch.optim.Adam(model.parameters(), lr=lr)
    sampler.set_epoch(0)
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.cuda(local_rank)), y.cuda(local_rank))
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def main():
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    torch.manual_seed(0)

    model = DDP(Net(classes=8).cuda(local_rank), device_ids=[local_rank])
    loss = fit(model, task(320, 8, 0), local_rank, lr=3e-3)
    if dist.get_rank() == 0:
        print(f"pretraining loss {loss:.4f}", flush=True)
        state = {k: v for k, v in model.state_dict().items() if "head" not in k}
        torch.save(state, CKPT)
    dist.barrier()

    # new head, so the checkpoint doesn't have all the keys
    model = Net(classes=3)
    state = torch.load(CKPT, map_location="cpu")
    model.load_state_dict(state, strict=False)
    model = DDP(model.cuda(local_rank), device_ids=[local_rank])
    loss = fit(model, task(320, 3, 1), local_rank, lr=1e-3)
    if dist.get_rank() == 0:
        print(f"fine-tuning loss {loss:.4f}", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
