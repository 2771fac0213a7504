"""Mixed precision training with gradient clipping.

torchrun --nproc-per-node=2 wrong_08_amp_clip.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Trainer:
    def __init__(self, model, loader, sampler, local_rank, grad_norm_clip=1.0):
        self.local_rank = local_rank
        self.model = DDP(model.to(local_rank), device_ids=[local_rank])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.scaler = torch.amp.GradScaler("cuda")
        self.loader, self.sampler = loader, sampler
        self.grad_norm_clip = grad_norm_clip

    def _run_batch(self, x, y):
        with torch.amp.autocast("cuda", dtype=torch.float16):
            loss = nn.functional.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.grad_norm_clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.item()

    def train(self, epochs):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            for x, y in self.loader:
                loss = self._run_batch(x.to(self.local_rank), y.to(self.local_rank))
            if dist.get_rank() == 0:
                print(f"epoch {epoch} loss {loss:.4f}", flush=True)


def main():
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    torch.manual_seed(0)

    g = torch.Generator().manual_seed(1)
    x = torch.randn(320, 24, generator=g)
    y = (x[:, :6].sum(1) > 0).long() + 2 * (x[:, 6:12].sum(1) > 0).long()
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=16, sampler=sampler, drop_last=True)

    model = nn.Sequential(nn.Linear(24, 64), nn.GELU(), nn.Linear(64, 4))
    Trainer(model, loader, sampler, local_rank).train(epochs=2)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
