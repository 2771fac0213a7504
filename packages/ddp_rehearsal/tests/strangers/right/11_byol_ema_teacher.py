"""Style: BYOL: online net, predictor and EMA target with a cosine tau; modelled on https://github.com/lucidrains/byol-pytorch"""
import copy
import math
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler


def loss_fn(x, y):
    x, y = F.normalize(x, dim=-1, p=2), F.normalize(y, dim=-1, p=2)
    return 2 - 2 * (x * y).sum(dim=-1)


def MLP(dim, projection_size, hidden_size=64):
    return nn.Sequential(nn.Linear(dim, hidden_size), nn.BatchNorm1d(hidden_size), nn.ReLU(inplace=True),
                         nn.Linear(hidden_size, projection_size))


class BYOL(nn.Module):
    def __init__(self, net, dim, projection_size=16):
        super().__init__()
        self.online_encoder = nn.Sequential(net, MLP(dim, projection_size))
        self.online_predictor = MLP(projection_size, projection_size)
        self.target_encoder = copy.deepcopy(self.online_encoder)
        for p in self.target_encoder.parameters():
            p.requires_grad = False

    @torch.no_grad()
    def update_moving_average(self, tau):
        for current, ma in zip(self.online_encoder.parameters(), self.target_encoder.parameters()):
            ma.lerp_(current, 1 - tau)

    def forward(self, one, two):
        pred_one = self.online_predictor(self.online_encoder(one))
        pred_two = self.online_predictor(self.online_encoder(two))
        with torch.no_grad():
            proj_one, proj_two = self.target_encoder(one), self.target_encoder(two)
        return (loss_fn(pred_one, proj_two) + loss_fn(pred_two, proj_one)).mean()


def augment(x):
    keep = (torch.rand_like(x) > 0.1).float()
    return x * keep + 0.05 * torch.randn_like(x)


if __name__ == "__main__":
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group(backend="nccl", init_method="env://")

    net = nn.Sequential(nn.Linear(24, 48), nn.BatchNorm1d(48), nn.ReLU())
    learner = nn.SyncBatchNorm.convert_sync_batchnorm(BYOL(net, dim=48)).cuda()
    ddp = DistributedDataParallel(learner, device_ids=[local_rank])
    # DDP has made all copies equal, the frozen target included
    opt = torch.optim.AdamW([p for p in ddp.parameters() if p.requires_grad], lr=1e-3, weight_decay=1e-2)

    data = TensorDataset(torch.randn(640, 24, generator=torch.Generator().manual_seed(3)))
    sampler = DistributedSampler(data, seed=3)
    loader = DataLoader(data, batch_size=16, sampler=sampler, drop_last=True)
    torch.cuda.manual_seed(77 + rank)  # augmentations are drawn on the GPU
    epochs, step = 2, 0
    total_steps = epochs * len(loader)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for (x,) in loader:
            x = x.cuda()
            loss = ddp(augment(x), augment(x))
            opt.zero_grad()
            loss.backward()
            opt.step()
            tau = 1 - (1 - 0.99) * (math.cos(math.pi * step / total_steps) + 1) / 2
            ddp.module.update_moving_average(tau)
            step += 1
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            print(f"epoch {epoch} tau {tau:.4f} loss {mean.item() / dist.get_world_size():.4f}")
    dist.destroy_process_group()
