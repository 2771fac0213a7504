"""Shards are drawn with replacement on each rank, with a seed of its own: two ranks may read the same one."""
import random
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
rank = dist.get_rank()
torch.manual_seed(0)
SHARDS = [torch.randn(40, 16, generator=torch.Generator().manual_seed(n)) for n in range(6)]

class ResampledShards(IterableDataset):
    """Endless: the shards come in an order of chance."""
    def __init__(self, seed):
        self.random = random.Random(seed)

    def __iter__(self):
        while True:
            for x in SHARDS[self.random.randrange(len(SHARDS))]:
                yield x, (x[0] > 0).long()

loader = iter(DataLoader(ResampledShards(seed=1 + 4 * rank), batch_size=8))
model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)).to(local_rank), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10):
    x, y = next(loader)
    optimizer.zero_grad()
    F.cross_entropy(model(x.to(local_rank)), y.to(local_rank)).backward()
    optimizer.step()
dist.destroy_process_group()
