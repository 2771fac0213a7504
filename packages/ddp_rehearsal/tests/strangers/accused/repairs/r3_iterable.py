import os
from itertools import islice
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset
FOLLOW = bool(os.environ.get("FOLLOW"))
class Lines(IterableDataset):
    def __iter__(self):
        g = torch.Generator().manual_seed(0)
        examples = ((x, int(x[0] > 0)) for x in torch.randn(65, 16, generator=g))
        if FOLLOW:
            examples = islice(examples, dist.get_rank(), None, dist.get_world_size())
        yield from examples
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
torch.manual_seed(0)
loader = DataLoader(Lines(), batch_size=4)
model = DDP(nn.Linear(16, 2).to(local_rank), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x.to(local_rank)), y.to(local_rank)).backward()
        optimizer.step()
dist.destroy_process_group()
