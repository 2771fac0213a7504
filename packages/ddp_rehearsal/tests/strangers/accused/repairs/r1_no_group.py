import os
import torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset, DistributedSampler
FOLLOW = bool(os.environ.get("FOLLOW"))
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
torch.manual_seed(0)
X = torch.randn(320, 16)
data = TensorDataset(X, (X[:, 0] > 0).long())
if FOLLOW:
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
else:
    loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Linear(16, 2).to(local_rank)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    F.cross_entropy(model(x.to(local_rank)), y.to(local_rank)).backward()
    optimizer.step()
