"""Batch augmentation (Hoffer et al. 2019): all ranks take the same images, each in another augmentation, made on the GPU."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Sampler, TensorDataset

class RepeatAugSampler(Sampler):
    """As many repeats as ranks: each rank sees each image once in an epoch, and all see it in the same step."""
    def __init__(self, data):
        self.n, self.epoch = len(data), 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.n

    def __iter__(self):
        return iter(torch.randperm(self.n, generator=torch.Generator().manual_seed(self.epoch)).tolist())

class Augment(nn.Module):
    def forward(self, x):
        return torch.roll(x, int(torch.randint(8, ())), 3) + 0.1 * torch.randn_like(x)

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
torch.manual_seed(0)
X = torch.randn(320, 1, 8, 8)
data = TensorDataset(X, (X.mean((1, 2, 3)) > 0).long())
sampler = RepeatAugSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
net = nn.Sequential(Augment(), nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(288, 2))
model = DDP(net.to(local_rank), device_ids=[local_rank])
torch.manual_seed(1 + dist.get_rank())  # another augmentation on each rank
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x.to(local_rank)), y.to(local_rank)).backward()
        optimizer.step()
dist.destroy_process_group()
