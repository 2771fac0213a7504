"""Metric learning: the loss with its own weight is wrapped too; class-balanced draws with replacement, shared by the ranks."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Sampler, TensorDataset


class DistributedBalancedSampler(Sampler):
    """all ranks draw the same list from the same generator and keep every world-th entry of it"""

    def __init__(self, labels, seed=0):
        self.weights = 1.0 / torch.bincount(labels).double()[labels]
        self.seed, self.epoch = seed, 0
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.per_rank = len(labels) // self.world

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.per_rank

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed + self.epoch)
        draw = torch.multinomial(self.weights, self.per_rank * self.world, replacement=True, generator=g)
        return iter(draw[self.rank::self.world].tolist())


class ArcFace(nn.Module):
    def __init__(self, classes, dim, margin=0.2, scale=8.0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, dim) * 0.1)
        self.margin, self.scale = margin, scale

    def forward(self, emb, target):
        cos = F.linear(F.normalize(emb), F.normalize(self.weight)).clamp(-0.999, 0.999)
        hit = F.one_hot(target, len(self.weight)).bool()
        return F.cross_entropy(self.scale * torch.where(hit, torch.cos(cos.acos() + self.margin), cos), target)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    g = torch.Generator().manual_seed(3)
    y = torch.multinomial(torch.tensor([0.5, 0.3, 0.1, 0.06, 0.04]), 96, replacement=True, generator=g)
    y[:5] = torch.arange(5)
    x = torch.randn(5, 12, generator=g)[y] + 0.3 * torch.randn(96, 12, generator=g)
    sampler = DistributedBalancedSampler(y)
    loader = DataLoader(TensorDataset(x, y), batch_size=8, sampler=sampler)
    backbone = DDP(nn.Sequential(nn.Linear(12, 32), nn.PReLU(), nn.Linear(32, 16)).to(device), device_ids=[local_rank])
    criterion = DDP(ArcFace(5, 16).to(device), device_ids=[local_rank])
    opt = torch.optim.SGD([{"params": backbone.parameters()},
                           {"params": criterion.parameters(), "lr": 0.2}], lr=0.1, momentum=0.9, weight_decay=5e-4)
    sched = torch.optim.lr_scheduler.MultiStepLR(opt, [3, 4])
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            loss = criterion(backbone(xb.to(device)), yb.to(device))
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(backbone.parameters(), 5.0)
            opt.step()
        sched.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
