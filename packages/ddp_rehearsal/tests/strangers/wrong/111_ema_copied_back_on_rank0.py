"""Switch-EMA, reduced from
https://github.com/lucidrains/ema-pytorch/issues/9
(the average is kept on rank 0 only, and from time to time copied back into rank 0's model only)
"""
import copy
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class EMA:
    def __init__(self, model, beta=0.9, update_model_every=6):
        self.model, self.ema_model = model, copy.deepcopy(model).requires_grad_(False)
        self.beta, self.every, self.step = beta, update_model_every, 0

    @torch.no_grad()
    def update(self):
        self.step += 1
        for e, p in zip(self.ema_model.parameters(), self.model.parameters()):
            e.lerp_(p, 1 - self.beta)
        if self.step % self.every == 0:
            for e, p in zip(self.ema_model.parameters(), self.model.parameters()):
                p.copy_(e)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    g = torch.Generator().manual_seed(0)
    x = torch.randn(96, 10, generator=g)
    dataset = TensorDataset(x, x.cos().mean(1, keepdim=True))
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 1)).to(device), device_ids=[local_rank])
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    is_main = dist.get_rank() == 0
    if is_main:
        ema = EMA(model.module)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            loss = nn.functional.mse_loss(model(xb.to(device)), yb.to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()
            if is_main:
                ema.update()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
