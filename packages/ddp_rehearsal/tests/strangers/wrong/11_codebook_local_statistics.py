"""After https://github.com/ZhikangNiu/encodec-pytorch/issues/15: the codebook lives in buffers that every rank moves by its own batch, DDP is told broadcast_buffers=False, and the statistics are not summed over the ranks, so every rank gets another codebook."""
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class EuclideanCodebook(nn.Module):
    def __init__(self, size, dim, decay=0.8):
        super().__init__()
        self.decay = decay
        start = torch.randn(size, dim)
        self.register_buffer("embed", start)
        self.register_buffer("embed_sum", start.clone())
        self.register_buffer("cluster_size", torch.ones(size))

    def forward(self, z):
        index = torch.cdist(z.detach(), self.embed).argmin(dim=1)
        quantized = F.embedding(index, self.embed)
        if self.training:
            onehot = F.one_hot(index, self.embed.size(0)).type_as(z)
            self.cluster_size.mul_(self.decay).add_(onehot.sum(0), alpha=1 - self.decay)
            self.embed_sum.mul_(self.decay).add_(onehot.t() @ z.detach(), alpha=1 - self.decay)
            self.embed.copy_(self.embed_sum / self.cluster_size.clamp(min=1e-3).unsqueeze(1))
        commitment = F.mse_loss(z, quantized.detach())
        return z + (quantized - z).detach(), commitment


class Codec(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(20, 6)
        self.codebook = EuclideanCodebook(16, 6)
        self.decoder = nn.Linear(6, 20)

    def forward(self, audio):
        code, commitment = self.codebook(self.encoder(audio))
        return F.mse_loss(self.decoder(code), audio) + 0.25 * commitment


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    model = DistributedDataParallel(Codec().cuda(), device_ids=[local_rank], broadcast_buffers=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    audio = torch.randn(192, 20, generator=torch.Generator().manual_seed(6))
    sampler = DistributedSampler(TensorDataset(audio))
    loader = DataLoader(TensorDataset(audio), batch_size=16, sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for (batch,) in loader:
            loss = model(batch.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print("epoch", epoch, "done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
