"""Decentralised SGD (D-PSGD): after each local step a rank mixes its weights with those of its neighbour on the ring."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
X = torch.randn(640, 16)
data = TensorDataset(X, (X[:, 0] > 0).long())
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)).to(local_rank)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def mix(model):
    """Send to the right, receive from the left; 2/3 of the own weights and 1/3 of the neighbour's."""
    right, left = (rank + 1) % world, (rank - 1) % world
    with torch.no_grad():
        for p in model.parameters():
            theirs = torch.empty_like(p)
            ops = [dist.P2POp(dist.isend, p.detach().clone(), right), dist.P2POp(dist.irecv, theirs, left)]
            for work in dist.batch_isend_irecv(ops):
                work.wait()
            p.mul_(2 / 3).add_(theirs, alpha=1 / 3)

for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x.to(local_rank)), y.to(local_rank)).backward()
        optimizer.step()
        mix(model)
dist.destroy_process_group()
