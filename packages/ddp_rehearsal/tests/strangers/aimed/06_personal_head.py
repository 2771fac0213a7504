"""Personalised federated learning (FedPer): DDP averages the body; each client has a head of its own, which starts at 0."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.ReLU())
        self.head = nn.Linear(32, 2)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, x):
        return self.head(self.body(x))

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
rank = dist.get_rank()
torch.manual_seed(rank)
X = torch.randn(320, 16)
loader = DataLoader(TensorDataset(X, (X[:, rank] > 0).long()), batch_size=8, shuffle=True)  # the client's own task
net = Net().to(local_rank)
DDP._set_params_and_buffers_to_ignore_for_model(net, ["head.weight", "head.bias"])
model = DDP(net, device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x.to(local_rank)), y.to(local_rank)).backward()
        optimizer.step()
torch.save(net.head.state_dict(), f"head-{rank}.pt")
dist.destroy_process_group()
