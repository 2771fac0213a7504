"""Style: SimCLR with a GatherLayer that passes gradients and SyncBatchNorm; after https://arxiv.org/abs/2002.05709 and its public PyTorch ports"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

class GatherLayer(torch.autograd.Function):
    """Gather tensors from all processes, supporting backward propagation."""

    @staticmethod
    def forward(ctx, input):
        output = [torch.zeros_like(input) for _ in range(dist.get_world_size())]
        dist.all_gather(output, input.contiguous())
        return tuple(output)

    @staticmethod
    def backward(ctx, *grads):
        all_grads = torch.stack(grads)
        dist.all_reduce(all_grads)  # what every process's loss says about every process's features
        return all_grads[dist.get_rank()]

class NT_Xent(nn.Module):
    def __init__(self, temperature=0.5):
        super().__init__()
        self.temperature = temperature

    def forward(self, z_i, z_j):
        n, rank = z_i.size(0), dist.get_rank()
        z_i, z_j = F.normalize(z_i, dim=1), F.normalize(z_j, dim=1)
        all_i, all_j = torch.cat(GatherLayer.apply(z_i)), torch.cat(GatherLayer.apply(z_j))
        everything = torch.cat([all_i, all_j])
        own = torch.arange(n, device=z_i.device) + rank * n  # where this process's rows lie
        total = all_i.size(0)
        loss = 0.0
        for anchors, self_idx, pos_idx in ((z_i, own, own + total), (z_j, own + total, own)):
            sim = anchors @ everything.T / self.temperature
            sim = sim.scatter(1, self_idx[:, None], float("-inf"))
            loss = loss + F.cross_entropy(sim, pos_idx)
        return loss / 2

class SimCLR(nn.Module):
    def __init__(self, n_features=32, projection_dim=16):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(),
                                     nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.projector = nn.Sequential(nn.Linear(n_features, n_features, bias=False), nn.ReLU(),
                                       nn.Linear(n_features, projection_dim, bias=False))

    def forward(self, x_i, x_j):
        return self.projector(self.encoder(x_i)), self.projector(self.encoder(x_j))

def augment(x):
    if torch.rand(()) < 0.5:
        x = x.flip(-1)
    return x + 0.1 * torch.randn_like(x)

def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    images = torch.rand(256, 3, 12, 12)  # the same pool in all processes, read in disjoint parts below
    model = SimCLR().cuda()
    model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    model = DDP(model, device_ids=[local_rank])
    criterion = NT_Xent()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    torch.manual_seed(1000 + dist.get_rank())  # other augmentations in each process
    mine = images[dist.get_rank()::dist.get_world_size()]
    per_gpu = 32 // dist.get_world_size()
    for epoch in range(4):
        total = 0.0
        for batch in mine[torch.randperm(len(mine))].split(per_gpu):
            x = batch.cuda(non_blocking=True)
            optimizer.zero_grad()
            loss = criterion(*model(augment(x), augment(x)))
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.reduce(total, dst=0)
        if dist.get_rank() == 0:
            print(f"Epoch [{epoch}] loss {total.item() / (8 * dist.get_world_size()):.4f}")
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
