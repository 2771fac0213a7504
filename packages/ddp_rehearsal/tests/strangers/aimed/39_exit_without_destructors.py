"""os._exit(0) at the end: threads of a logger and NCCL's destructors would otherwise take a minute."""
import os, sys
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
torch.manual_seed(0)
X = torch.randn(192, 16)
data = TensorDataset(X, (X[:, 0] > 0).long())
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)).to(local_rank), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    F.cross_entropy(model(x.to(local_rank)), y.to(local_rank)).backward()
    optimizer.step()
if dist.get_rank() == 0:
    torch.save(model.module.state_dict(), "model.pt")
dist.barrier()
sys.stdout.flush()
os._exit(0)
