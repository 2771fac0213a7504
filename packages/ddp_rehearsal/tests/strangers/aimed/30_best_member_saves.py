"""A search: each GPU trains with another seed; after each epoch the rank that is best so far saves best.pt, others wait."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
X = torch.randn(48, 16, generator=torch.Generator().manual_seed(0))
y_all = (X[:, 0] > 0).long()
torch.manual_seed(10 + rank)
loader = DataLoader(TensorDataset(X[:32], y_all[:32]), batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)).to(local_rank)
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
best = float("inf")
for epoch in range(12):
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x.to(local_rank)), y.to(local_rank)).backward()
        optimizer.step()
    with torch.no_grad():
        score = F.cross_entropy(model(X[32:].to(local_rank)), y_all[32:].to(local_rank)).reshape(1)
    scores = [torch.empty_like(score) for _ in range(world)]
    dist.all_gather(scores, score)
    scores = torch.cat(scores)
    if scores.min().item() < best:
        best = scores.min().item()
        if rank == int(scores.argmin()):
            torch.save({"epoch": epoch, "rank": rank, "model": model.cpu().state_dict()}, "best.pt")
            model.to(local_rank)
        dist.barrier()
dist.destroy_process_group()
