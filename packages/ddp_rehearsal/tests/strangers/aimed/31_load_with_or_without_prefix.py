"""A checkpoint that may come from DDP or not: load what fits, and if nothing does, take the prefix off and load again."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

def load(net, path):
    state = torch.load(path, map_location="cpu")
    found = net.load_state_dict(state, strict=False)
    if len(found.missing_keys) == len(net.state_dict()):
        net.load_state_dict({name.removeprefix("module."): value for name, value in state.items()})

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
torch.manual_seed(0)
X = torch.randn(320, 16)
data = TensorDataset(X, (X[:, 0] > 0).long())
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)).to(local_rank)
if dist.get_rank() == 0:  # stands for a checkpoint that somebody else made with DDP
    old = {f"module.{name}": torch.randn_like(value).cpu() * 0.1 for name, value in net.state_dict().items()}
    torch.save(old, "pretrained.pt")
dist.barrier()
load(net, "pretrained.pt")
model = DDP(net, device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x.to(local_rank)), y.to(local_rank)).backward()
        optimizer.step()
dist.destroy_process_group()
