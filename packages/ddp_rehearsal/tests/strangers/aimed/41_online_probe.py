"""An online probe learns by hand beside the network; the optimizer already holds the decoder of the second phase."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
world = dist.get_world_size()
torch.manual_seed(0)
X = torch.randn(640, 16)
data = TensorDataset(X, (X[:, 0] > 0).long())
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
encoder = DDP(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)).to(local_rank), device_ids=[local_rank])
decoder = nn.Linear(8, 16).to(local_rank)  # is trained from the 50th epoch on
probe = nn.Linear(8, 2).to(local_rank)
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
for epoch in range(100):
    sampler.set_epoch(epoch)
    for x, y in loader:
        x, y = x.to(local_rank), y.to(local_rank)
        z = encoder(x)
        loss = (z.std(0) - 1).pow(2).mean()
        if epoch >= 50:
            loss = loss + F.mse_loss(decoder(z), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        F.cross_entropy(probe(z.detach()), y).backward()
        with torch.no_grad():
            for p in probe.parameters():
                dist.all_reduce(p.grad)
                p -= 0.1 * p.grad / world
                p.grad.zero_()
dist.destroy_process_group()
