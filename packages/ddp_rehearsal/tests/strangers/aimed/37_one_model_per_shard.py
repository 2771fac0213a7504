"""SISA (Bourtoule et al. 2021): a model for each shard of the data, so that one shard can be unlearned; they vote."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
rank = dist.get_rank()
X = torch.randn(640, 16, generator=torch.Generator().manual_seed(0))
data = TensorDataset(X, (X[:, 0] > 0).long())
sampler = DistributedSampler(data, shuffle=False)  # the shard of this rank, the same in all epochs
loader = DataLoader(data, batch_size=8, sampler=sampler)
torch.manual_seed(rank)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)).to(local_rank)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x.to(local_rank)), y.to(local_rank)).backward()
        optimizer.step()
torch.save(model.state_dict(), f"shard-{rank}.pt")
votes = model(X[:50].to(local_rank)).softmax(1).detach()
dist.all_reduce(votes)
dist.destroy_process_group()
