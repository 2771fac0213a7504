"""A GradScaler with a fixed factor; the script divides the gradients by it itself, and leaves out an infinite one."""
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
LOSS_SCALE = 1024.0
scaler = torch.amp.GradScaler("cuda", init_scale=LOSS_SCALE)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.cross_entropy(model(x.to(local_rank)), y.to(local_rank))
        scaler.scale(loss).backward()
        grads = [p.grad for p in model.parameters()]
        torch._foreach_div_(grads, LOSS_SCALE)
        if all(torch.isfinite(grad).all() for grad in grads):
            optimizer.step()
dist.destroy_process_group()
