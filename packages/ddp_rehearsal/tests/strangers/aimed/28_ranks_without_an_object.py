"""Detection: the loss is divided by the number of objects of all ranks; a rank whose minibatch has none sends a 0."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
world = dist.get_world_size()
torch.manual_seed(0)
X = torch.randn(320, 16)
data = TensorDataset(X, (torch.rand(320) < 0.2).long(), (X[:, 0] > 0).long())  # is there an object, and its class
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)).to(local_rank), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, there, kind in loader:
        out, there, kind = model(x.to(local_rank)), there.to(local_rank).bool(), kind.to(local_rank)
        if there.any():
            n = there.sum().float()
            dist.all_reduce(n)
            loss = F.cross_entropy(out[there], kind[there], reduction="sum")
        else:
            n = torch.zeros((), device=local_rank)
            dist.all_reduce(n)
            loss = out.sum() * 0
        optimizer.zero_grad()
        (loss * world / n.clamp(min=1)).backward()
        optimizer.step()
dist.destroy_process_group()
