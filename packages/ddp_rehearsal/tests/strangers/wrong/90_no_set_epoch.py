"""Vocoder-like regression, reduced from
https://github.com/kan-bayashi/ParallelWaveGAN/issues/177
(the distributed sampler is never told the epoch)
"""
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class MelToWave(Dataset):
    def __init__(self, n=96):
        g = torch.Generator().manual_seed(3)
        self.mel = torch.randn(n, 4, 10, generator=g)
        self.wave = self.mel.mean(1, keepdim=True).repeat_interleave(2, dim=2)

    def __len__(self):
        return len(self.mel)

    def __getitem__(self, i):
        return self.mel[i], self.wave[i]


class Trainer:
    def __init__(self, loader, model, optimizer, device):
        self.loader, self.model, self.optimizer, self.device = loader, model, optimizer, device
        self.steps = 0

    def train_epoch(self):
        self.model.train()
        for mel, wave in self.loader:
            mel, wave = mel.to(self.device), wave.to(self.device)
            loss = nn.functional.l1_loss(self.model(mel), wave)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 10.0)
            self.optimizer.step()
            self.steps += 1

    def run(self, max_steps):
        while self.steps < max_steps:
            self.train_epoch()


if __name__ == "__main__":
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group(backend="nccl", init_method="env://")
    dataset = MelToWave()
    sampler = DistributedSampler(dataset, num_replicas=dist.get_world_size(), rank=dist.get_rank(), shuffle=True)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    net = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv1d(4, 8, 3, padding=1), nn.ReLU(), nn.Conv1d(8, 1, 1))
    model = DistributedDataParallel(net.cuda(), device_ids=[rank])
    Trainer(loader, model, torch.optim.Adam(model.parameters(), lr=1e-3), torch.device("cuda", rank)).run(30)
    dist.destroy_process_group()
