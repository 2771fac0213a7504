"""Hidden rows mixed by a permutation on the CPU, a frozen body in evaluation mode, reentrant checkpointing."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(9, 12), nn.BatchNorm1d(12))
        self.middle, self.head = weight_norm(nn.Linear(12, 12)), nn.Linear(12, 2)

    def forward(self, X, order):
        hidden = self.body(X).requires_grad_()
        hidden = checkpoint(lambda rows: self.middle(rows).tanh(), hidden, use_reentrant=True)
        return self.head(0.6 * hidden + 0.4 * hidden[order])


rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
torch.manual_seed(9)
X = torch.randn(120, 9)
data = TensorDataset(X, (X[:, 0] * X[:, 1] > 0).long())
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=10, sampler=sampler)
net = Mixer().cuda()
net.body.requires_grad_(False)
model = DistributedDataParallel(net, device_ids=[rank], static_graph=True)
optimizer = torch.optim.Adam([param for param in net.parameters() if param.requires_grad], lr=0.01)
for epoch in range(2):
    sampler.set_epoch(epoch)
    model.train()
    net.body.eval()
    for inputs, labels in loader:
        order = torch.randperm(len(inputs))
        logits = model(inputs.cuda(), order)
        loss = sum(w * nn.functional.cross_entropy(logits, y.cuda()) for w, y in ((0.6, labels), (0.4, labels[order])))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
dist.destroy_process_group()
