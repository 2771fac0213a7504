"""ZeRO: each rank saves its part of the optimizer's state, all under one name."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
FOLLOW = bool(os.environ.get("FOLLOW"))
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
torch.manual_seed(0)
X = torch.randn(160, 16)
data = TensorDataset(X, (X[:, 0] > 0).long())
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)).to(local_rank), device_ids=[local_rank])
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-3)
for x, y in loader:
    optimizer.zero_grad()
    F.cross_entropy(model(x.to(local_rank)), y.to(local_rank)).backward()
    optimizer.step()
if not FOLLOW or dist.get_rank() == 0:
    torch.save(optimizer.optim.state_dict(), "optimizer.pt")  # the local optimizer: this rank's part
dist.barrier()
dist.destroy_process_group()
