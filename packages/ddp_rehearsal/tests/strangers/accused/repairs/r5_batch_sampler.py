import os, random
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
FOLLOW = bool(os.environ.get("FOLLOW"))
class Buckets:
    """Minibatches of examples of about the same length."""
    def __init__(self, n, size):
        self.batches = [list(range(i, i + size)) for i in range(0, n, size)]
    def __iter__(self):
        random.shuffle(self.batches)
        return iter(self.batches)
    def __len__(self):
        return len(self.batches)
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
torch.manual_seed(0)
random.seed(0)
X = torch.randn(320, 16)
data = TensorDataset(X, (X[:, 0] > 0).long())
more = {"sampler": DistributedSampler(data)} if FOLLOW else {}
loader = DataLoader(data, batch_sampler=Buckets(320, 8), **more)
model = DDP(nn.Linear(16, 2).to(local_rank), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    F.cross_entropy(model(x.to(local_rank)), y.to(local_rank)).backward()
    optimizer.step()
dist.destroy_process_group()
