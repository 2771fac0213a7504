"""Style: VQ-VAE whose EMA codebook is fed by all_reduce inside forward; modelled on https://github.com/rosinality/vq-vae-2-pytorch"""
import os

import torch
from torch import distributed as dist
from torch import nn, optim
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Quantize(nn.Module):
    def __init__(self, dim, n_embed, decay=0.99, eps=1e-5):
        super().__init__()
        self.n_embed, self.decay, self.eps = n_embed, decay, eps
        embed = torch.randn(dim, n_embed)
        self.register_buffer("embed", embed)
        self.register_buffer("cluster_size", torch.zeros(n_embed))
        self.register_buffer("embed_avg", embed.clone())

    def forward(self, input):
        flatten = input.reshape(-1, input.shape[-1])
        dist_ = flatten.pow(2).sum(1, keepdim=True) - 2 * flatten @ self.embed + self.embed.pow(2).sum(0, keepdim=True)
        _, embed_ind = (-dist_).max(1)
        embed_onehot = F.one_hot(embed_ind, self.n_embed).type(flatten.dtype)
        quantize = F.embedding(embed_ind.view(*input.shape[:-1]), self.embed.transpose(0, 1))
        if self.training:
            with torch.no_grad():
                embed_onehot_sum = embed_onehot.sum(0)
                embed_sum = flatten.transpose(0, 1) @ embed_onehot
                dist.all_reduce(embed_onehot_sum)
                dist.all_reduce(embed_sum)
                self.cluster_size.mul_(self.decay).add_(embed_onehot_sum, alpha=1 - self.decay)
                self.embed_avg.mul_(self.decay).add_(embed_sum, alpha=1 - self.decay)
                n = self.cluster_size.sum()
                cluster_size = (self.cluster_size + self.eps) / (n + self.n_embed * self.eps) * n
                self.embed.copy_(self.embed_avg / cluster_size.unsqueeze(0))
        diff = (quantize.detach() - input).pow(2).mean()
        return input + (quantize - input).detach(), diff


class VQVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(3, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 8, 3, 1, 1))
        self.quantize = Quantize(8, 32)
        self.dec = nn.Sequential(nn.Conv2d(8, 16, 3, 1, 1), nn.ReLU(), nn.ConvTranspose2d(16, 3, 4, 2, 1))

    def forward(self, x):
        quant, diff = self.quantize(self.enc(x).permute(0, 2, 3, 1))
        return self.dec(quant.permute(0, 3, 1, 2)), diff


def train(epoch, loader, model, optimizer, device):
    criterion = nn.MSELoss()
    latent_loss_weight = 0.25
    mse_sum, mse_n = 0.0, 0
    for (img,) in loader:
        model.zero_grad()
        img = img.to(device)
        out, latent_loss = model(img)
        recon_loss = criterion(out, img)
        loss = recon_loss + latent_loss_weight * latent_loss
        loss.backward()
        optimizer.step()
        parts = [None for _ in range(dist.get_world_size())]
        dist.all_gather_object(parts, {"mse_sum": recon_loss.item() * img.shape[0], "mse_n": img.shape[0]})
        for part in parts:
            mse_sum += part["mse_sum"]
            mse_n += part["mse_n"]
    if dist.get_rank() == 0:
        print(f"epoch: {epoch + 1}; avg mse: {mse_sum / mse_n:.5f}; lr: {optimizer.param_groups[0]['lr']:.5f}")


if __name__ == "__main__":
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    device = "cuda"
    images = torch.rand(320, 3, 12, 12, generator=torch.Generator().manual_seed(8))
    sampler = DistributedSampler(dataset := TensorDataset(images), shuffle=True)
    loader = DataLoader(dataset, batch_size=32 // dist.get_world_size(), sampler=sampler)
    model = nn.parallel.DistributedDataParallel(VQVAE().to(device), device_ids=[local_rank])
    optimizer = optim.Adam(model.parameters(), lr=3e-4)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        train(epoch, loader, model, optimizer, device)
    dist.destroy_process_group()
