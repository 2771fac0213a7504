"""Steps 10 to 15 are profiled by nsys --capture-range=cudaProfilerApi."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
torch.manual_seed(0)
X = torch.randn(640, 16)
data = TensorDataset(X, (X[:, 0] > 0).long())
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)).to(local_rank), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step, (x, y) in enumerate(loader):
    if step == 10:
        torch.cuda.cudart().cudaProfilerStart()
    if step == 15:
        torch.cuda.cudart().cudaProfilerStop()
    optimizer.zero_grad()
    F.cross_entropy(model(x.to(local_rank)), y.to(local_rank)).backward()
    optimizer.step()
dist.destroy_process_group()
