"""After https://github.com/lucidrains/ema-pytorch/issues/9: the average (EMA) lives on rank 0 only and is written back into the online model there every few steps, so from then on rank 0 trains with other weights than the rest."""
import copy
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class EMA:
    def __init__(self, online, beta=0.9, update_model_every=5):
        self.online = online
        self.average = copy.deepcopy(online).requires_grad_(False)
        self.beta, self.every, self.step = beta, update_model_every, 0

    @torch.no_grad()
    def update(self):
        self.step += 1
        for slow, fast in zip(self.average.parameters(), self.online.parameters()):
            slow.lerp_(fast, 1 - self.beta)
        if self.step % self.every == 0:
            for slow, fast in zip(self.average.parameters(), self.online.parameters()):
                fast.copy_(slow)


def build(device):
    torch.manual_seed(2024)
    return nn.Sequential(nn.Linear(4, 32), nn.SiLU(), nn.Linear(32, 4)).to(device)


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group(backend="nccl")
    rank = dist.get_rank()

    net = build(local)
    ddp = DistributedDataParallel(net, device_ids=[local])
    optimizer = torch.optim.Adam(ddp.parameters(), lr=1e-3)
    ema = EMA(net) if rank == 0 else None

    points = torch.randn(160, 4, generator=torch.Generator().manual_seed(1))
    dataset = TensorDataset(points, points.roll(1, dims=1))
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)

    for epoch in range(4):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = (ddp(x.to(local)) - y.to(local)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if ema is not None:
                ema.update()
        dist.barrier()
        if rank == 0:
            print(f"epoch {epoch} finished", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
