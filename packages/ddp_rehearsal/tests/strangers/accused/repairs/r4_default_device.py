import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
FOLLOW = bool(os.environ.get("FOLLOW"))
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
torch.set_default_device("cuda")
dist.init_process_group("nccl")
torch.manual_seed(0)
X = torch.randn(320, 16)
data = TensorDataset(X, (X[:, 0] > 0).long())
more = {"generator": torch.Generator(device="cuda")} if FOLLOW else {}
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data), **more)
model = DDP(nn.Linear(16, 2), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
dist.destroy_process_group()
