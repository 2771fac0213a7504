"""Accuracy over all ranks without the repeats of DistributedSampler, and the mean time of the evaluation."""
import os
import time
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
X = torch.randn(193, 16)
y_all = (X[:, 0] > 0).long()
train, test = TensorDataset(X[:128], y_all[:128]), TensorDataset(X[128:], y_all[128:])  # 65 for the test
sampler = DistributedSampler(train)
loader = DataLoader(train, batch_size=8, sampler=sampler)
test_loader = DataLoader(test, batch_size=8, sampler=DistributedSampler(test, shuffle=False))
model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)).to(local_rank), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

@torch.no_grad()
def accuracy():
    """Rank 0 collects the predictions and their numbers; a repeated example is counted once. The time is averaged."""
    model.eval()
    began = time.perf_counter()
    found = torch.cat([model(x.to(local_rank)).argmax(1) == y.to(local_rank) for x, y in test_loader])
    seconds = torch.tensor(time.perf_counter() - began, device=local_rank)
    dist.all_reduce(seconds, op=dist.ReduceOp.AVG)
    parts = [torch.empty_like(found) for _ in range(world)]
    dist.all_gather(parts, found)
    model.train()
    right = torch.stack(parts, 1).reshape(-1)[: len(test)]  # the order of the data, without the repeats
    return right.float().mean().item()

for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x.to(local_rank)), y.to(local_rank)).backward()
        optimizer.step()
    acc = accuracy()
    if rank == 0:
        print("accuracy", acc)
dist.destroy_process_group()
