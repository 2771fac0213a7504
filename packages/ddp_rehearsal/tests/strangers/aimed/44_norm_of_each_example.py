"""The slopes of single examples are computed by torch.func in the forward pass, and a penalty is made of them."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
rank = dist.get_rank()
torch.manual_seed(0)
X = torch.randn(512, 16)
data = TensorDataset(X, (X[:, 0] > 0).long())
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)

class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.Tanh())
        self.head = nn.Linear(32, 2)

    def forward(self, x):
        slope = torch.func.vmap(torch.func.grad(lambda row: self.body(row[None]).sum()))(x)
        return self.head(self.body(x)), slope.norm(dim=1)

model = DDP(Classifier().to(local_rank), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for epoch in range(1):
    sampler.set_epoch(epoch)
    for x, y in loader:
        logits, slopes = model(x.to(local_rank))
        loss = F.cross_entropy(logits, y.to(local_rank)) + 0.01 * slopes.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
if rank == 0:
    print("loss", loss.item())
dist.destroy_process_group()
