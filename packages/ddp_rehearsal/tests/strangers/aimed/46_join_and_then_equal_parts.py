"""Training on parts of different lengths in a Join, then as many steps on all ranks; rank 0 saves in between."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
rank = dist.get_rank()
torch.manual_seed(0)
X = torch.randn(256, 16)
data = TensorDataset(X, (X[:, 0] > 0).long())
mine = Subset(data, range(0, 40) if rank == 0 else range(40, 104))
model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)).to(local_rank), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def step(x, y):
    optimizer.zero_grad()
    F.cross_entropy(model(x.to(local_rank)), y.to(local_rank)).backward()
    optimizer.step()

with model.join():
    for x, y in DataLoader(mine, batch_size=8):
        step(x, y)
if rank == 0:
    torch.save(model.module.state_dict(), "pretrained.pt")
dist.barrier()
model.module.load_state_dict(torch.load("pretrained.pt", map_location=f"cuda:{local_rank}"))
sampler = DistributedSampler(data)
for x, y in DataLoader(data, batch_size=16, sampler=sampler):
    step(x, y)
dist.barrier()
if rank == 0:
    os.remove("pretrained.pt")
dist.destroy_process_group()
