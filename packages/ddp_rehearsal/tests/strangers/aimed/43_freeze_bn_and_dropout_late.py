"""Two phases: after ten steps BatchNorm and dropout are frozen on purpose for the fine-tuning at a low rate."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
torch.manual_seed(0)
X = torch.randn(640, 16)
data = TensorDataset(X, (X[:, 0] > 0).long())
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
net = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2))
model = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(net).to(local_rank), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model.train()
for step, (x, y) in enumerate(loader):
    if step == 10:  # the statistics are good now: train the weights as they will be used
        model.eval()
        optimizer.param_groups[0]["lr"] = 0.01
    optimizer.zero_grad()
    F.cross_entropy(model(x.to(local_rank)), y.to(local_rank)).backward()
    optimizer.step()
dist.destroy_process_group()
