"""A quick estimate of the loss on the first four minibatches of the test data (eval_iters = 4)."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
X = torch.randn(193, 16)
y_all = (X[:, 0] > 0).long()
train, test = TensorDataset(X[:128], y_all[:128]), TensorDataset(X[128:], y_all[128:])  # 65 for the test
sampler = DistributedSampler(train)
loader = DataLoader(train, batch_size=8, sampler=sampler)
test_loader = DataLoader(test, batch_size=8, sampler=DistributedSampler(test, shuffle=False))
model = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)).to(local_rank), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

@torch.no_grad()
def accuracy(eval_iters=4):
    model.eval()
    counts = torch.zeros(2, device=local_rank)
    for i, (x, y) in enumerate(test_loader):  # 5 minibatches; the repeated example would be in the last one
        if i == eval_iters:
            break
        counts += torch.tensor([(model(x.to(local_rank)).argmax(1).cpu() == y).sum(), len(y)]).to(local_rank)
    dist.all_reduce(counts)
    model.train()
    return (counts[0] / counts[1]).item()

for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x.to(local_rank)), y.to(local_rank)).backward()
        optimizer.step()
    acc = accuracy()
    if rank == 0:
        print("accuracy", acc)
dist.destroy_process_group()
