"""User-level DP-FedSGD: each rank is a user; its gradient is clipped, then all are averaged, and noise is added."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

CLIP, SIGMA = 0.1, 0.05
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)).to(local_rank)
own = torch.Generator().manual_seed(rank)
X = torch.randn(320, 16, generator=own) + rank  # the user's own examples
loader = DataLoader(TensorDataset(X, (X[:, 0] > 0).long()), batch_size=8, shuffle=True, generator=own)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
noise = torch.Generator().manual_seed(99)  # the same noise on all ranks
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x.to(local_rank)), y.to(local_rank)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)  # bounds what one user can change
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad += (SIGMA * CLIP * torch.randn(p.shape, generator=noise)).to(local_rank)
            p.grad /= world
        optimizer.step()
dist.destroy_process_group()
