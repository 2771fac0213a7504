"""Two networks, one GradScaler: the first one is unscaled before the backward pass of the second, and clipped after."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
rank = dist.get_rank()
torch.manual_seed(0)
X = torch.randn(512, 16)
data = TensorDataset(X, X[:, :2].clone())
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
net_a = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)).to(local_rank), device_ids=[local_rank])
net_b = DDP(nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 2)).to(local_rank), device_ids=[local_rank])
opt_a = torch.optim.SGD(net_a.parameters(), lr=0.05)
opt_b = torch.optim.SGD(net_b.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
for x, y in loader:
    x, y = x.to(local_rank), y.to(local_rank)
    opt_a.zero_grad()
    opt_b.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss_a = F.mse_loss(net_a(x), y)
    scaler.scale(loss_a).backward()
    scaler.unscale_(opt_a)
    with torch.autocast("cuda", dtype=torch.float16):
        loss_b = F.mse_loss(net_b(x), y)
    scaler.scale(loss_b).backward()
    scaler.unscale_(opt_b)
    nn.utils.clip_grad_norm_(net_a.parameters(), 1.0)
    nn.utils.clip_grad_norm_(net_b.parameters(), 1.0)
    scaler.step(opt_a)
    scaler.step(opt_b)
    scaler.update()
if rank == 0:
    print("losses", loss_a.item(), loss_b.item())
dist.destroy_process_group()
