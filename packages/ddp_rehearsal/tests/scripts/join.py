"""Uneven minibatches in a Join, one for each epoch, and an optimizer without a state."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
torch.manual_seed(4)
X = torch.randn(90, 5)
part = TensorDataset(X[:60] if rank == 0 else X[60:], X.sum(1, keepdim=True)[:60] if rank == 0 else X[60:, :1])
loader = DataLoader(part, batch_size=6)
net = DistributedDataParallel(nn.Linear(5, 1).cuda(), device_ids=[rank])
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for _ in range(2):
    with net.join():
        for inputs, wanted in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(net(inputs.cuda()), wanted.cuda()).backward()
            optimizer.step()
dist.destroy_process_group()
