"""Style: activation checkpointing, reentrant and not, checkpoint_sequential, DDP with static graph; after https://docs.pytorch.org/docs/stable/checkpoint.html"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


class EncoderLayer(nn.Module):
    def __init__(self, dim, heads, dropout=0.1):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, dropout=dropout, batch_first=True)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Dropout(dropout), nn.Linear(2 * dim, dim))

    def forward(self, x):
        h = self.ln1(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.ff(self.ln2(x))


class Classifier(nn.Module):
    def __init__(self, mode, dim=16, depth=4, classes=5):
        super().__init__()
        assert mode in ("reentrant", "non_reentrant", "sequential", "off")
        self.mode = mode
        self.embed = nn.Linear(6, dim)
        self.layers = nn.Sequential(*[EncoderLayer(dim, 2) for _ in range(depth)])
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.embed(x)  # requires grad, as the reentrant kind demands of its input
        if self.mode == "off" or not self.training:
            x = self.layers(x)
        elif self.mode == "sequential":
            x = checkpoint_sequential(self.layers, 2, x, use_reentrant=False)
        else:
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=self.mode == "reentrant")
        return self.head(x.mean(1))


def train(mode, local_rank, steps=12):
    torch.manual_seed(0)
    # reentrant checkpointing runs backward inside backward: tell DDP that the graph stays the same
    model = DDP(Classifier(mode).cuda(), device_ids=[local_rank], static_graph=mode == "reentrant")
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    torch.cuda.manual_seed(50 + dist.get_rank())  # dropout differs between the ranks, recomputation repeats it
    gen = torch.Generator().manual_seed(60 + dist.get_rank())
    torch.cuda.reset_peak_memory_stats()
    for _ in range(steps):
        x = torch.randn(8, 10, 6, generator=gen)
        y = x.mean(1)[:, :5].argmax(1).cuda(non_blocking=True)
        loss = F.cross_entropy(model(x.cuda(non_blocking=True)), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    peak = torch.tensor([torch.cuda.max_memory_allocated() / 2 ** 20], device="cuda")
    dist.all_reduce(peak, op=dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        print(f"{mode:>13}: loss {loss.item():.4f}, peak memory {peak.item():.2f} MiB")


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group(backend="nccl")
    for mode in ("off", "non_reentrant", "reentrant", "sequential"):
        train(mode, local_rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
