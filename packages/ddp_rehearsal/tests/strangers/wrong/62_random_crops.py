"""Self-supervised denoising on random crops of one long signal.

torchrun --nproc-per-node=2 wrong_02_random_crops.py
"""
import os
import random

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class RandomCrops(Dataset):
    def __init__(self, length=20000, crop=64, samples=320):
        t = np.arange(length, dtype=np.float32)
        self.signal = np.sin(t / 37.0) + 0.5 * np.sin(t / 11.0)
        self.crop, self.samples = crop, samples

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        # a fresh crop every time it's asked for
        start = np.random.randint(0, len(self.signal) - self.crop)
        clean = self.signal[start:start + self.crop]
        noisy = clean + 0.3 * np.random.randn(self.crop)
        return torch.from_numpy(noisy.astype(np.float32)), torch.from_numpy(clean)


def seed_worker(worker_id):
    # https://pytorch.org/docs/stable/notes/randomness.html#dataloader
    worker_seed = torch.initial_seed() % 2**32
    np.random.seed(worker_seed)
    random.seed(worker_seed)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group(backend="nccl")
    torch.manual_seed(1234)

    dataset = RandomCrops()
    sampler = DistributedSampler(dataset, shuffle=True)
    g = torch.Generator()
    g.manual_seed(1234)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler, num_workers=2,
                        worker_init_fn=seed_worker, generator=g, drop_last=True)

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)).cuda()
    model = DDP(model, device_ids=[local_rank])
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)

    for epoch in range(2):
        sampler.set_epoch(epoch)
        for noisy, clean in loader:
            noisy, clean = noisy.cuda(), clean.cuda()
            loss = nn.functional.mse_loss(model(noisy), clean)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
