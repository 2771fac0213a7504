"""Two views of each example, with random numbers that depend on seed, rank and index alone, so that a run can be repeated."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

class TwoViews(Dataset):
    def __init__(self, x, rank):
        self.x, self.rank = x, rank

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(1_000_003 * self.rank + i)
        return tuple(self.x[i] + 0.1 * torch.randn(16, generator=g) for _ in range(2))

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
torch.manual_seed(0)
data = TwoViews(torch.randn(640, 16), dist.get_rank())
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)).to(local_rank), device_ids=[local_rank])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for one, other in loader:
        a, b = model(torch.cat([one, other]).to(local_rank)).chunk(2)
        logits = F.normalize(a, dim=1) @ F.normalize(b, dim=1).T / 0.1
        loss = F.cross_entropy(logits, torch.arange(len(a), device=local_rank))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
dist.destroy_process_group()
