import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset
FOLLOW = bool(os.environ.get("FOLLOW"))
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
X = torch.randn(193, 16)
y_all = (X[:, 0] > 0).long()
train, test = TensorDataset(X[:160], y_all[:160]), TensorDataset(X[160:], y_all[160:])  # 33
sampler = DistributedSampler(train)
loader = DataLoader(train, batch_size=8, sampler=sampler)
if FOLLOW:
    test_loader = DataLoader(Subset(test, range(rank, len(test), world)), batch_size=8)
else:
    test_loader = DataLoader(test, batch_size=8, sampler=DistributedSampler(test, shuffle=False))
net = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2)).to(local_rank)
model = DDP(net, device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x.to(local_rank)), y.to(local_rank)).backward()
        optimizer.step()
    model.eval()
    counts = torch.zeros(2, device=local_rank)
    with torch.no_grad():
        for x, y in test_loader:
            counts[0] += (model(x.to(local_rank)).argmax(1).cpu() == y).sum()
            counts[1] += len(y)
    dist.all_reduce(counts)
dist.destroy_process_group()
