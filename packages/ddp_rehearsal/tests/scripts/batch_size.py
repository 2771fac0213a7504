"""DDP with the minibatch of a rank as an argument: four ranks with 8 rows make the updates of one rank with 32."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8, help="rows of a rank")
parser.add_argument("--lr", type=float, default=0.05)
args = parser.parse_args()
local_rank, world_size = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
generator = torch.Generator().manual_seed(3)
X = torch.randn(128, 10, generator=generator)
y = torch.randint(-1, 4, (128,), generator=generator)  # -1 for a row without a label
data = TensorDataset(X, y)
sampler = DistributedSampler(data, seed=1)
loader = DataLoader(data, args.batch_size, sampler=sampler)
model = DDP(nn.Sequential(nn.Linear(10, 24), nn.Tanh(), nn.Linear(24, 4)).cuda(), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for X, y in loader:
        X, y = X.cuda(), y.cuda()
        count = (y >= 0).sum()
        dist.all_reduce(count)  # of all ranks
        loss = nn.functional.cross_entropy(model(X), y, ignore_index=-1, reduction="sum")
        loss = loss / count * world_size
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scheduler.step()
dist.destroy_process_group()
