"""Video-diffusion-like trainer, reduced from
https://github.com/NVlabs/LongLive/issues/71
(every rank builds the distributed sampler with a seed of its own: time x rank)
"""
import os
import time
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def cycle(loader, sampler):
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


def main():
    dist.init_process_group("nccl")
    rank, local = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    device = torch.device("cuda", local)
    torch.manual_seed(100 + rank)

    latents = torch.randn(96, 8, generator=torch.Generator().manual_seed(1))
    dataset = TensorDataset(latents)
    sampler = DistributedSampler(dataset, shuffle=True, drop_last=True, seed=int(time.time()) * rank)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler, num_workers=0, drop_last=True)
    batches = cycle(loader, sampler)

    net = nn.Sequential(nn.Linear(9, 32), nn.SiLU(), nn.Linear(32, 8)).to(device)
    model = DDP(net, device_ids=[local])
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(30):
        (x0,) = next(batches)
        x0 = x0.to(device)
        t = torch.rand(len(x0), 1, device=device)
        noise = torch.randn_like(x0)
        xt = (1 - t) * x0 + t * noise
        loss = ((model(torch.cat([xt, t], 1)) - (noise - x0)) ** 2).mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 10 == 0 and rank == 0:
            print(step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
