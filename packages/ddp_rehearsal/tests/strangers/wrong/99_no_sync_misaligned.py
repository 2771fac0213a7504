"""Speech-like training with gradient accumulation, reduced from
https://github.com/modelscope/FunASR/pull/3472
(the first micro-batch of a group synchronises, the last one - just before the step - does not)
"""
import os
from contextlib import nullcontext
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(4, 12, batch_first=True)
        self.out = nn.Linear(12, 5)

    def forward(self, feats):
        h, _ = self.rnn(feats)
        return self.out(h)


def train_epoch(model, loader, optimizer, device, accum_grad):
    model.train()
    for batch_idx, (feats, targets) in enumerate(loader):
        if dist.get_world_size() > 1 and batch_idx % accum_grad != 0:
            context = model.no_sync
        else:
            context = nullcontext
        with context():
            logits = model(feats.to(device))
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.to(device).flatten())
            (loss / accum_grad).backward()
        if (batch_idx + 1) % accum_grad == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            optimizer.zero_grad()


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    g = torch.Generator().manual_seed(0)
    feats = torch.randn(128, 6, 4, generator=g)
    dataset = TensorDataset(feats, feats.argmax(-1))
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=4, sampler=sampler, drop_last=True)
    model = DDP(Recogniser().to(device), device_ids=[local_rank])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        train_epoch(model, loader, optimizer, device, accum_grad=2)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
