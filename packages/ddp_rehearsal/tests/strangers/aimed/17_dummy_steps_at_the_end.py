"""Shards of different lengths: the ranks with fewer minibatches go on with empty ones, of weight 0, until all are done."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
X = torch.randn(240 - 24 * rank, 16)
loader = DataLoader(TensorDataset(X, (X[:, 0] > 0).long()), batch_size=8, shuffle=True)
most = torch.tensor(len(loader), device=local_rank)
dist.all_reduce(most, op=dist.ReduceOp.MAX)
model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)).to(local_rank), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def train_step(x, y, weight):
    count = torch.tensor(float(weight), device=local_rank)
    dist.all_reduce(count)
    loss = weight * F.cross_entropy(model(x.to(local_rank)), y.to(local_rank)) * world / count
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

for epoch in range(2):
    for x, y in loader:
        train_step(x, y, len(x))
    for _ in range(int(most) - len(loader)):
        train_step(torch.zeros(1, 16), torch.zeros(1, dtype=torch.long), 0)
dist.destroy_process_group()
