"""FSDP shards the body; each client has a small head of its own, whose gradients are clipped on their own."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.utils.data import DataLoader, TensorDataset

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
rank = dist.get_rank()
torch.manual_seed(0)
body = FSDP(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU()).to(local_rank), device_id=local_rank)
torch.manual_seed(rank)
head = nn.Linear(32, 2).to(local_rank)  # personal
X = torch.randn(320, 16)
loader = DataLoader(TensorDataset(X, (X[:, rank] > 0).long()), batch_size=8, shuffle=True)  # the client's data
optimizer = torch.optim.SGD([{"params": body.parameters()}, {"params": head.parameters(), "lr": 0.01}], lr=0.05)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(head(body(x.to(local_rank))), y.to(local_rank)).backward()
        body.clip_grad_norm_(1.0)
        nn.utils.clip_grad_norm_(head.parameters(), 0.1)
        optimizer.step()
dist.destroy_process_group()
