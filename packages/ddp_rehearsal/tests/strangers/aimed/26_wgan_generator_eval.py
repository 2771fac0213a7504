"""WGAN with five steps of the critic for one of the generator, which is in evaluation mode while the critic learns."""
import os
import torch, torch.distributed as dist, torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
torch.manual_seed(0)
data = TensorDataset(torch.randn(1280, 16) * 2 + 1)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=16, sampler=sampler)
G = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16)).to(local_rank)
C = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1)).to(local_rank)
G = DDP(G, device_ids=[local_rank], broadcast_buffers=False)
C = DDP(C, device_ids=[local_rank])
opt_g, opt_c = torch.optim.RMSprop(G.parameters(), lr=5e-5), torch.optim.RMSprop(C.parameters(), lr=5e-5)
torch.manual_seed(1 + dist.get_rank())
for epoch in range(2):
    sampler.set_epoch(epoch)
    for i, (real,) in enumerate(loader):
        real = real.to(local_rank)
        G.eval()
        fake = G(torch.randn(len(real), 8, device=local_rank)).detach()
        n = len(real)
        scores = C(torch.cat([real, fake]))
        loss_c = scores[n:].mean() - scores[:n].mean()
        opt_c.zero_grad()
        loss_c.backward()
        opt_c.step()
        for p in C.parameters():
            p.data.clamp_(-0.01, 0.01)
        if i % 5 == 4:
            G.train()
            loss_g = -C(G(torch.randn(n, 8, device=local_rank))).mean()
            opt_g.zero_grad()
            loss_g.backward()
            opt_g.step()
dist.destroy_process_group()
