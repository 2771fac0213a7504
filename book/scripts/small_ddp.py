"""Train a small network on GPUs with DistributedDataParallel: right code, short enough to read it in one go."""

import contextlib
import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

BATCH_SIZE, PIECES, CHECKPOINT = 32, 2, sys.argv[1]  # the minibatch is that of all ranks together
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)  # all ranks make the same network and the same data
X_all = torch.randn(256, 20)
data = TensorDataset(X_all, X_all[:, :5].argmax(1))
sampler = DistributedSampler(data)
loader = DataLoader(data, BATCH_SIZE // world_size, sampler=sampler)
net = DistributedDataParallel(nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 5)).to(local_rank))
lr = 0.1 * BATCH_SIZE / 16  # the linear rule: 0.1 was right for 16 examples
optimizer = torch.optim.SGD(net.parameters(), lr)
first = 0
if os.path.exists(CHECKPOINT):
    saved = torch.load(CHECKPOINT, map_location=f"cuda:{local_rank}")
    net.module.load_state_dict(saved["net"])
    optimizer.load_state_dict(saved["optimizer"])
    first = saved["epoch"] + 1
noise = torch.Generator()
for epoch in range(first, first + 2):  # two more epochs
    sampler.set_epoch(epoch)
    noise.manual_seed(1000 * epoch + rank)  # each rank draws noise of its own
    for X, y in loader:
        X = (X + 0.1 * torch.randn(X.shape, generator=noise)).to(local_rank)
        optimizer.zero_grad()
        for i, (X_piece, y_piece) in enumerate(zip(X.chunk(PIECES), y.to(local_rank).chunk(PIECES), strict=True)):
            with contextlib.nullcontext() if i == PIECES - 1 else net.no_sync():  # only the last piece sends
                loss = F.cross_entropy(net(X_piece), y_piece) / PIECES
                loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        optimizer.step()
    mean_loss = loss.detach()
    dist.all_reduce(mean_loss, op=dist.ReduceOp.AVG)
    if rank == 0:
        print(f"epoch {epoch + 1}: last loss {mean_loss.item() * PIECES:.3f}")
        states = {"net": net.module.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(states | {"epoch": epoch}, CHECKPOINT)
    dist.barrier()
dist.destroy_process_group()
