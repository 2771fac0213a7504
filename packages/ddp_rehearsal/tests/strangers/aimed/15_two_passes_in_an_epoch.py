"""Alternating training: in each epoch one pass updates the backbone, and one pass the head, in the order of the epoch."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
torch.manual_seed(0)
X = torch.randn(128, 16)
data = TensorDataset(X, (X[:, 0] > 0).long())
sampler = DistributedSampler(data, shuffle=True)
loader = DataLoader(data, batch_size=8, sampler=sampler)
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)).to(local_rank)
model = DDP(net, device_ids=[local_rank])
optimizers = [torch.optim.SGD(net[0].parameters(), lr=0.1), torch.optim.SGD(net[2].parameters(), lr=0.01)]
for epoch in range(4):
    sampler.set_epoch(epoch)
    for optimizer in optimizers:
        for x, y in loader:
            model.zero_grad()
            F.cross_entropy(model(x.to(local_rank)), y.to(local_rank)).backward()
            optimizer.step()
dist.destroy_process_group()
