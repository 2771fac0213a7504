"""Autoencoder that is called past its wrapper, reduced from
https://github.com/rosinality/swapping-autoencoder-pytorch/issues/22
(model.module.encode / .decode: the wrapper's forward never runs)
"""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3, padding=1))
        self.dec = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(2, 1, 3, padding=1))

    def encode(self, x):
        return self.enc(x)

    def decode(self, z):
        return self.dec(z)

    def forward(self, x):
        return self.decode(self.encode(x))


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    images = torch.rand(96, 1, 8, 8, generator=torch.Generator().manual_seed(2))
    dataset = TensorDataset(images)
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler, drop_last=True)
    model = DDP(AutoEncoder().to(device), device_ids=[local_rank])
    opt = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.5, 0.99))
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for (img,) in loader:
            img = img.to(device)
            z = model.module.encode(img)
            rec = model.module.decode(z)
            loss = (rec - img).abs().mean() + 1e-3 * z.pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            print(f"[{epoch}] rec {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
