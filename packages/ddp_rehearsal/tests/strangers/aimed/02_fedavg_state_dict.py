"""FedAvg: the server's weights are broadcast, each client trains E local steps on its own data, the states are averaged."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
X = torch.randn(400, 16) + 0.1 * rank  # the client's own data
loader = DataLoader(TensorDataset(X, (X.sum(1) > 0).long()), batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)).to(local_rank)
for tensor in model.state_dict().values():
    dist.broadcast(tensor, src=0)
for round_ in range(3):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:  # one local epoch, 50 steps
        optimizer.zero_grad()
        F.cross_entropy(model(x.to(local_rank)), y.to(local_rank)).backward()
        optimizer.step()
    state = model.state_dict()
    for name in state:
        dist.all_reduce(state[name])
        state[name] /= world
    model.load_state_dict(state)
dist.destroy_process_group()
