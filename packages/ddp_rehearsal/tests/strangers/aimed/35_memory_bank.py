"""Instance discrimination: the bank of features has the rank's own examples, whose part stays the same in all epochs."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset

class Net(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
        self.bank = nn.Parameter(F.normalize(torch.ones(n, 8), dim=1), requires_grad=False)

    def forward(self, x, i):
        z = F.normalize(self.layers(x), dim=1)
        loss = F.cross_entropy(z @ self.bank.T.clone() / 0.2, i)
        self.bank.data[i] = F.normalize(0.5 * self.bank.data[i] + 0.5 * z.detach(), dim=1)
        return loss

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
X = torch.randn(160, 16)
mine = X[rank::world]
loader = DataLoader(TensorDataset(mine, torch.arange(len(mine))), batch_size=8, shuffle=True)
model = DDP(Net(len(mine)).to(local_rank), device_ids=[local_rank])
optimizer = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=0.1)
for epoch in range(3):
    for x, i in loader:
        optimizer.zero_grad()
        model(x.to(local_rank), i.to(local_rank)).backward()
        optimizer.step()
dist.destroy_process_group()
