"""--overfit: a check of the network on the first four minibatches, again and again, as Lightning's overfit_batches does."""
import os
from itertools import islice
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
X = torch.randn(640, 16)
data = TensorDataset(X, torch.randint(2, (640,)))
loader = DataLoader(Subset(data, range(rank, 640, world)), batch_size=8, shuffle=True)
overfit = 4
batches = list(islice(loader, overfit)) if overfit else loader
model = DDP(nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 2)).to(local_rank), device_ids=[local_rank])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(10):
    for x, y in batches:
        loss = F.cross_entropy(model(x.to(local_rank)), y.to(local_rank))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 0:
        print(epoch, loss.item())
dist.destroy_process_group()
