"""First-order MAML: a step on the support minibatch, the gradient of the query minibatch there, the update at the start."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
torch.manual_seed(0)
X = torch.randn(1280, 16)
data = TensorDataset(X, (X[:, 0] > 0).long())
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)).to(local_rank), device_ids=[local_rank])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(2):
    sampler.set_epoch(epoch)
    batches = iter(loader)
    for (xs, ys), (xq, yq) in zip(batches, batches):
        start = [p.detach().clone() for p in model.parameters()]
        F.cross_entropy(model(xs.to(local_rank)), ys.to(local_rank)).backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.05 * p.grad
        optimizer.zero_grad()  # the inner step is done
        F.cross_entropy(model(xq.to(local_rank)), yq.to(local_rank)).backward()
        with torch.no_grad():
            for p, before in zip(model.parameters(), start):
                p.copy_(before)
        optimizer.step()
dist.destroy_process_group()
