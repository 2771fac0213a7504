"""Face-recognition-like training, reduced from
https://github.com/KevinMusgrave/pytorch-metric-learning/issues/710
(the loss owns a weight matrix and is optimised, but only the backbone is wrapped)
"""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class ArcFaceLoss(nn.Module):
    def __init__(self, classes, dim, margin=0.2, scale=8.0):
        super().__init__()
        self.W = nn.Parameter(torch.randn(classes, dim) * 0.1)
        self.margin, self.scale = margin, scale

    def forward(self, emb, target):
        cos = F.linear(F.normalize(emb), F.normalize(self.W)).clamp(-0.999, 0.999)
        hit = F.one_hot(target, len(self.W)).bool()
        logits = torch.where(hit, torch.cos(torch.acos(cos) + self.margin), cos)
        return F.cross_entropy(self.scale * logits, target)


def main():
    torch.manual_seed(42)
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    g = torch.Generator().manual_seed(0)
    y = torch.arange(96) % 6
    centres = torch.randn(6, 12, generator=g)
    dataset = TensorDataset(centres[y] + 0.3 * torch.randn(96, 12, generator=g), y)
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler, drop_last=True)

    backbone = DDP(nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 16)).to(device), device_ids=[local_rank])
    loss_fn = ArcFaceLoss(6, 16).to(device)
    optimizer = torch.optim.SGD([{"params": backbone.parameters()}, {"params": loss_fn.parameters()}],
                                lr=0.1, momentum=0.9)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = loss_fn(backbone(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
