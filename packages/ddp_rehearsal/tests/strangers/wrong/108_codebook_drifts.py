"""Neural codec with a moving-average codebook, reduced from
https://github.com/espnet/espnet/pull/6284
(the codebook's statistics come from the rank's own batch and are never summed over the ranks)
"""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Codebook(nn.Module):
    def __init__(self, size=16, dim=6, decay=0.9):
        super().__init__()
        self.decay = decay
        embed = torch.randn(size, dim)
        self.register_buffer("embed", embed)
        self.register_buffer("cluster_size", torch.ones(size))
        self.register_buffer("embed_avg", embed.clone())

    def forward(self, z):
        idx = torch.cdist(z, self.embed).argmin(1)
        q = self.embed[idx]
        if self.training:
            with torch.no_grad():
                onehot = F.one_hot(idx, len(self.embed)).type_as(z)
                count, total = onehot.sum(0), onehot.t() @ z
                self.cluster_size.mul_(self.decay).add_(count, alpha=1 - self.decay)
                self.embed_avg.mul_(self.decay).add_(total, alpha=1 - self.decay)
                self.embed.copy_(self.embed_avg / self.cluster_size.clamp(min=1e-3).unsqueeze(1))
        return z + (q - z).detach(), F.mse_loss(z, q.detach())


class Codec(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.vq, self.dec = nn.Linear(20, 6), Codebook(), nn.Linear(6, 20)

    def forward(self, x):
        q, commit = self.vq(self.enc(x))
        return self.dec(q), commit


def main():
    torch.manual_seed(0)
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    dataset = TensorDataset(torch.randn(96, 20))
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    model = DDP(Codec().to(device), device_ids=[local_rank], broadcast_buffers=False)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for (x,) in loader:
            x = x.to(device)
            rec, commit = model(x)
            loss = F.mse_loss(rec, x) + 0.25 * commit
            opt.zero_grad()
            loss.backward()
            opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
