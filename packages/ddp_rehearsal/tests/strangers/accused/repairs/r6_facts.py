"""Accumulation over 4; the first input is the task; a wrapper of one's own has an attribute `module`; 100 minibatches."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

class Scaled(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        self.task = None

    def forward(self, task, x):
        return self.module(x) * (1 + task)

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
torch.manual_seed(0)
X = torch.randn(1600, 16)
data = TensorDataset(X, (X[:, 0] > 0).long())
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
net = Scaled(nn.Linear(16, 2)).to(local_rank)
model = DDP(net, device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
which = torch.Generator().manual_seed(7)
for i, (x, y) in enumerate(loader):
    task = torch.randint(4, (1,), generator=which).to(local_rank)
    (F.cross_entropy(model(task, x.to(local_rank)), y.to(local_rank)) / 4).backward()
    if i % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
    if i == 40 and dist.get_rank() == 0:
        torch.save(net.state_dict(), "net.pt")
dist.destroy_process_group()
