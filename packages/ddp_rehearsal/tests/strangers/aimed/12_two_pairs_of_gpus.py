"""Two members of an ensemble, each trained by a pair of GPUs; each member shuffles with a seed of its own. 4 GPUs."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
rank = dist.get_rank()
pairs = [dist.new_group([2 * i, 2 * i + 1]) for i in range(dist.get_world_size() // 2)]
member, half = divmod(rank, 2)
X = torch.randn(640, 16, generator=torch.Generator().manual_seed(0))
data = TensorDataset(X, (X[:, 0] > 0).long())
sampler = DistributedSampler(data, num_replicas=2, rank=half, seed=member)
loader = DataLoader(data, batch_size=8, sampler=sampler)
torch.manual_seed(member)
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)).to(local_rank)
model = DDP(net, device_ids=[local_rank], process_group=pairs[member])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x.to(local_rank)), y.to(local_rank)).backward()
        optimizer.step()
if half == 0:
    torch.save(net.state_dict(), f"member-{member}.pt")
dist.barrier()
dist.destroy_process_group()
