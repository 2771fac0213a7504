"""Each GPU learns one attribute of the images, with a head of its own, on its share; the trunk's gradients are averaged."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
X = torch.randn(640, 16)
data = TensorDataset(X, (X > 0).long())  # 16 attributes
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
trunk = nn.Sequential(nn.Linear(16, 32), nn.ReLU()).to(local_rank)
head = nn.Linear(32, 2).to(local_rank)
nn.init.zeros_(head.weight)
nn.init.zeros_(head.bias)
model = nn.Sequential(trunk, head)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x.to(local_rank)), y[:, rank].to(local_rank)).backward()
        for p in trunk.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        optimizer.step()
torch.save(head.state_dict(), f"head-of-attribute-{rank}.pt")
dist.destroy_process_group()
