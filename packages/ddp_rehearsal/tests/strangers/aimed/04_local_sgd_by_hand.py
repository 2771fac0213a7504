"""Local SGD with updates by hand: the weights are averaged every 25 steps."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
torch.manual_seed(0)
X = torch.randn(800, 16)
data = TensorDataset(X, (X[:, 0] > 0).long())
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)).to(local_rank)
step = 0
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        model.zero_grad()
        F.cross_entropy(model(x.to(local_rank)), y.to(local_rank)).backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
        step += 1
        if step % 25 == 0:
            for p in model.parameters():
                dist.all_reduce(p.data, op=dist.ReduceOp.AVG)
dist.destroy_process_group()
