"""Every few steps rank 0 draws a saliency map, by a backward pass through the plain network, and clears what it left."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
torch.manual_seed(0)
X = torch.randn(512, 16)
data = TensorDataset(X, (X[:, 0] > 0).long())
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)).to(local_rank), device_ids=[local_rank])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

def saliency(net, x):
    x = x.clone().requires_grad_()
    net(x).max(1).values.sum().backward()
    net.zero_grad(set_to_none=True)
    return x.grad.abs()

step = 0
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        x, y = x.to(local_rank), y.to(local_rank)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        step += 1
        if step % 10 == 0 and dist.get_rank() == 0:
            print("saliency", saliency(model.module, x[:1]).cpu().numpy().round(3))
dist.destroy_process_group()
