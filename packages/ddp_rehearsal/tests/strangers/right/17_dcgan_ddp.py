"""Style: DCGAN tutorial loop (real, fake, generator) with both nets in DDP; modelled on https://github.com/pytorch/examples/blob/main/dcgan/main.py"""
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.optim as optim
import torch.utils.data
from torch.nn.parallel import DistributedDataParallel as DDP

nz, ngf, ndf, nc = 8, 4, 4, 1
local_rank = int(os.environ["LOCAL_RANK"])
dist.init_process_group("nccl")
torch.cuda.set_device(local_rank)
device = torch.device("cuda", local_rank)
manualSeed = 999
torch.manual_seed(manualSeed)

# custom weights initialization called on netG and netD
def weights_init(m):
    classname = m.__class__.__name__
    if classname.find('Conv') != -1:
        torch.nn.init.normal_(m.weight, 0.0, 0.02)
    elif classname.find('BatchNorm') != -1:
        torch.nn.init.normal_(m.weight, 1.0, 0.02)
        torch.nn.init.zeros_(m.bias)

class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False), nn.BatchNorm2d(ngf * 2), nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False), nn.BatchNorm2d(ngf), nn.ReLU(True),
            nn.ConvTranspose2d(ngf, nc, 4, 2, 1, bias=False), nn.Tanh())
    def forward(self, input):
        return self.main(input)

class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(nc, ndf, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False), nn.BatchNorm2d(ndf * 2), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf * 2, 1, 4, 1, 0, bias=False), nn.Sigmoid())
    def forward(self, input):
        return self.main(input).view(-1)

netG = Generator().to(device)
netG.apply(weights_init)
netD = Discriminator().to(device)
netD.apply(weights_init)
netG, netD = DDP(netG, device_ids=[local_rank]), DDP(netD, device_ids=[local_rank])

dataset = torch.utils.data.TensorDataset(torch.rand(320, nc, 16, 16) * 2 - 1)  # equal on all ranks: one seed so far
sampler = torch.utils.data.distributed.DistributedSampler(dataset)
dataloader = torch.utils.data.DataLoader(dataset, batch_size=16, sampler=sampler, drop_last=True)
fixed_noise = torch.randn(8, nz, 1, 1, device=device)
torch.manual_seed(manualSeed + 1 + dist.get_rank())  # from here every rank draws its own noise

criterion = nn.BCELoss()
real_label, fake_label = 1., 0.
optimizerD = optim.Adam(netD.parameters(), lr=0.0002, betas=(0.5, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=0.0002, betas=(0.5, 0.999))
for epoch in range(3):
    sampler.set_epoch(epoch)
    for i, data in enumerate(dataloader, 0):
        # (1) Update D network: maximize log(D(x)) + log(1 - D(G(z)))
        netD.zero_grad()
        real = data[0].to(device)
        label = torch.full((real.size(0),), real_label, dtype=real.dtype, device=device)
        errD_real = criterion(netD(real), label)
        errD_real.backward()
        fake = netG(torch.randn(real.size(0), nz, 1, 1, device=device))
        label.fill_(fake_label)
        errD_fake = criterion(netD(fake.detach()), label)
        errD_fake.backward()
        optimizerD.step()
        # (2) Update G network: maximize log(D(G(z)))
        netG.zero_grad()
        errG = criterion(netD(fake), torch.full_like(label, real_label))
        errG.backward()
        optimizerG.step()
    if dist.get_rank() == 0:
        print(f'[{epoch}/3] Loss_D: {(errD_real + errD_fake).item():.4f} Loss_G: {errG.item():.4f}')
        netG.eval()
        with torch.no_grad(), tempfile.NamedTemporaryFile(suffix=f'_fake_samples_epoch_{epoch:03d}.pt') as f:
            torch.save(netG.module(fixed_noise).cpu(), f)
        netG.train()
dist.destroy_process_group()
