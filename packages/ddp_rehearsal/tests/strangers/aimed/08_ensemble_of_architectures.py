"""An ensemble: each GPU trains another architecture on all of the data; at the end the predictions are averaged."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

def make(kind):
    if kind == 0:
        return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
    return nn.Sequential(nn.Linear(16, 24), nn.Tanh(), nn.LayerNorm(24), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 2))

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
g = torch.Generator().manual_seed(0)
X = torch.randn(400, 16, generator=g)
y_all = (X[:, 0] * X[:, 1] > 0).long()
torch.manual_seed(100 + rank)
loader = DataLoader(TensorDataset(X, y_all), batch_size=16, shuffle=True)
model = make(rank % 2).to(local_rank)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x.to(local_rank)), y.to(local_rank)).backward()
        optimizer.step()
model.eval()
with torch.no_grad():
    probs = model(X[:100].to(local_rank)).softmax(1)
dist.all_reduce(probs)
if rank == 0:
    print("accuracy of the ensemble", (probs.argmax(1).cpu() == y_all[:100]).float().mean().item())
dist.destroy_process_group()
