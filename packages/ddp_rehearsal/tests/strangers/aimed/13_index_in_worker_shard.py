"""Each worker of each rank simulates trajectories of its own; the network gets (time, state)."""
import os
import torch, torch.distributed as dist, torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

class Simulator(IterableDataset):
    """An oscillator with a random start: (time, state) -> state a moment later. Batches of 8 points."""
    def __iter__(self):
        info = get_worker_info()
        number = dist.get_rank() * (info.num_workers if info else 1) + (info.id if info else 0)
        g = torch.Generator().manual_seed(number)
        while True:
            a, b = torch.rand(2, generator=g)
            for i in range(64):
                t = 0.1 * i
                yield torch.tensor([t]), torch.stack([a * torch.tensor(t).sin(), b * torch.tensor(t).cos()]), (
                    torch.stack([a * torch.tensor(t + 0.1).sin(), b * torch.tensor(t + 0.1).cos()]))

class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 2))

    def forward(self, t, state):
        return state + self.layers(torch.cat([t, state], 1))

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
loader = DataLoader(Simulator(), batch_size=8, num_workers=2)
model = DDP(Flow().to(local_rank), device_ids=[local_rank])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step, (t, state, target) in enumerate(loader):
    t, state, target = (part.to(local_rank) for part in (t, state, target))
    optimizer.zero_grad()
    (model(t, state) - target).pow(2).mean().backward()
    optimizer.step()
    if step == 39:
        break
dist.destroy_process_group()
