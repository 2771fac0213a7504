"""Dual averaging (Xiao 2010): the weights come from the sum of all gradients, which is kept in p.grad; it is never cleared."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

class DualAveraging(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})
        self.t = 0
        for p in self.param_groups[0]["params"]:
            self.state[p]["start"] = p.detach().clone()

    @torch.no_grad()
    def step(self):
        self.t += 1
        for p in self.param_groups[0]["params"]:
            p.copy_(self.state[p]["start"] - self.param_groups[0]["lr"] / self.t**0.5 * p.grad)

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
torch.manual_seed(0)
X = torch.randn(640, 16)
data = TensorDataset(X, (X[:, 0] > 0).long())
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = DDP(nn.Linear(16, 2).to(local_rank), device_ids=[local_rank])
optimizer = DualAveraging(model.parameters(), lr=0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:  # DDP averages the sum of before, which is the same on all ranks, and the new gradients
        F.cross_entropy(model(x.to(local_rank)), y.to(local_rank)).backward()
        optimizer.step()
dist.destroy_process_group()
