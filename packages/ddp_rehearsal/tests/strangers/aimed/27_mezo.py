"""MeZO (Malladi et al. 2023): no backward pass; two forward passes without gradients at weights that are moved by +-eps z."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

class MeZO(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-2, eps=1e-3):
        super().__init__(params, {"lr": lr, "eps": eps})
        self.seed = 0

    def _move(self, factor):
        g = torch.Generator().manual_seed(self.seed)
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(torch.randn(p.shape, generator=g).to(p.device), alpha=factor)

    @torch.no_grad()
    def step(self, closure):
        group = self.param_groups[0]
        self.seed += 1
        self._move(group["eps"])
        up = closure()
        self._move(-2 * group["eps"])
        down = closure()
        self._move(group["eps"])
        slope = (up - down) / (2 * group["eps"])
        dist.all_reduce(slope, op=dist.ReduceOp.AVG)  # one number
        self._move(-group["lr"] * slope.item())
        return (up + down) / 2

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
torch.manual_seed(0)
X = torch.randn(640, 16)
data = TensorDataset(X, (X[:, 0] > 0).long())
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)).to(local_rank)
optimizer = MeZO(model.parameters())
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        x, y = x.to(local_rank), y.to(local_rank)
        optimizer.step(lambda: F.cross_entropy(model(x), y))
dist.destroy_process_group()
