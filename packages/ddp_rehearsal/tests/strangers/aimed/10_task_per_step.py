"""Several tasks: in each step all ranks draw the same task, so that DDP averages gradients of one; each has its examples."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

class Net(nn.Module):
    def __init__(self, tasks=16):
        super().__init__()
        self.task = nn.Embedding(tasks, 32)
        self.inner = nn.Linear(16, 32)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(32, 2)

    def forward(self, task, x):
        return self.out(self.drop(F.relu(self.inner(x) * self.task(task))))

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
torch.manual_seed(0)
X = torch.randn(640, 16)
data = TensorDataset(X, (X > 0).long())
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = DDP(Net().to(local_rank), device_ids=[local_rank])
torch.manual_seed(1 + dist.get_rank())  # other dropout on each rank
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
which = torch.Generator().manual_seed(7)  # the same tasks on all ranks
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        task = torch.randint(16, (1,), generator=which)
        loss = F.cross_entropy(model(task.to(local_rank), x.to(local_rank)), y[:, task.item()].to(local_rank))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
dist.destroy_process_group()
