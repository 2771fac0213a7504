"""After https://github.com/IAHispano/Applio/pull/860: optimizer.step() is called on the scaled gradients, and then scaler.step(optimizer) steps once more; with a GradScaler only scaler.step may do it."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 32), nn.LeakyReLU(0.1), nn.Linear(32, 16), nn.Tanh())

    def forward(self, phone):
        return self.net(phone)


def prepare():
    g = torch.Generator().manual_seed(44)
    phone = torch.randn(128, 10, generator=g)
    wave = torch.sin(phone @ torch.randn(10, 16, generator=g))
    dataset = TensorDataset(phone, wave)
    sampler = DistributedSampler(dataset, shuffle=True)
    return sampler, DataLoader(dataset, batch_size=16, sampler=sampler)


def train_and_evaluate(rank, device, net_g, optim_g, scaler, sampler, loader, epoch):
    sampler.set_epoch(epoch)
    net_g.train()
    for phone, wave in loader:
        phone, wave = phone.to(device), wave.to(device)
        with torch.autocast("cuda", dtype=torch.float16):
            wave_hat = net_g(phone)
            loss_gen = nn.functional.l1_loss(wave_hat, wave)
        optim_g.zero_grad()
        scaler.scale(loss_gen).backward()
        optim_g.step()
        scaler.step(optim_g)
        scaler.update()
    shown = loss_gen.detach().float()
    dist.all_reduce(shown, op=dist.ReduceOp.AVG)
    if rank == 0:
        print(f"epoch {epoch} | generator {shown.item():.4f}", flush=True)


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    torch.manual_seed(1234)
    net_g = DDP(Generator().to(device), device_ids=[device.index])
    optim_g = torch.optim.SGD(net_g.parameters(), lr=1e-3, momentum=0.8)
    scaler = torch.amp.GradScaler("cuda")
    sampler, loader = prepare()
    for epoch in range(1, 5):
        train_and_evaluate(dist.get_rank(), device, net_g, optim_g, scaler, sampler, loader, epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
