"""Cross-validation, a fold on each GPU. Rank 0 alone reads the pretrained weights, and sends them to the others."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import DataLoader, Subset, TensorDataset

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
X = torch.randn(400, 16)
data = TensorDataset(X, (X[:, 0] > 0).long())
train = Subset(data, [i for i in range(400) if i % world != rank])
held_out = Subset(data, list(range(rank, 400, world)))
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
if rank == 0:
    torch.manual_seed(123)  # stands for torch.load("pretrained.pt") from a slow disk
    for p in model.parameters():
        nn.init.normal_(p, std=0.1)
model.to(local_rank)
for p in model.parameters():
    dist.broadcast(p.data, 0)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for epoch in range(2):
    for x, y in DataLoader(train, batch_size=16, shuffle=True):
        optimizer.zero_grad()
        F.cross_entropy(model(x.to(local_rank)), y.to(local_rank)).backward()
        optimizer.step()
model.eval()
with torch.no_grad():
    right = sum((model(x.to(local_rank)).argmax(1).cpu() == y).sum() for x, y in DataLoader(held_out, batch_size=64))
score = torch.tensor(float(right) / len(held_out), device=local_rank)
dist.all_reduce(score)
if rank == 0:
    print("mean accuracy of the folds", score.item() / world)
dist.destroy_process_group()
