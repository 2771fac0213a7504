"""Parts of 49 and 51 minibatches, accumulated by fours without synchronizing: twelve updates on both ranks."""
import contextlib
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
rank = dist.get_rank()
torch.manual_seed(0)
X = torch.randn(400, 16)
data = TensorDataset(X, (X[:, 0] > 0).long())
mine = Subset(data, range(0, 196) if rank == 0 else range(196, 400))
loader = DataLoader(mine, batch_size=4, shuffle=True)
model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)).to(local_rank), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    optimizer.zero_grad()
    for n, (x, y) in enumerate(loader, start=1):
        with contextlib.nullcontext() if n % 4 == 0 else model.no_sync():
            (F.cross_entropy(model(x.to(local_rank)), y.to(local_rank)) / 4).backward()
        if n % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
dist.destroy_process_group()
