"""Batches of about equal token counts; every token of the global batch weighs the same.

torchrun --nproc-per-node=2 right_13_token_batches.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils.rnn import pad_sequence

VOCAB, PAD, BUDGET = 40, 0, 200


def corpus(n=300):
    g = torch.Generator().manual_seed(21)
    out = []
    for _ in range(n):
        length = int(torch.randint(4, 40, (1,), generator=g))
        start = int(torch.randint(1, VOCAB, (1,), generator=g))
        out.append((torch.arange(length) + start) % (VOCAB - 1) + 1)
    return out


def make_batches(sentences, epoch, rank, world):
    """The same plan on all ranks; batch k goes to rank k % world, an odd rest is dropped."""
    g = torch.Generator().manual_seed(epoch)
    batches, current, longest = [], [], 0
    for i in torch.randperm(len(sentences), generator=g).tolist():
        longest = max(longest, len(sentences[i]))
        if current and longest * (len(current) + 1) > BUDGET:
            batches.append(current)
            current, longest = [], len(sentences[i])
        current.append(i)
    batches.append(current)
    usable = len(batches) // world * world
    return batches[rank:usable:world]


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, 32, padding_idx=PAD)
        self.rnn = nn.GRU(32, 48, batch_first=True)
        self.out = nn.Linear(48, VOCAB)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    torch.manual_seed(0)

    sentences = corpus()
    model = DDP(LM().to(device), device_ids=[local_rank])
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)

    for step, idx in enumerate(make_batches(sentences, 0, rank, world)[:20]):
        batch = pad_sequence([sentences[i] for i in idx], batch_first=True, padding_value=PAD).to(device)
        x, y = batch[:, :-1], batch[:, 1:]
        tokens = (y != PAD).sum()
        dist.all_reduce(tokens)
        loss_sum = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=PAD, reduction="sum")
        # DDP divides by the number of GPUs, we want a sum over them divided by all tokens
        loss = loss_sum * world / tokens
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 5 == 0:
            shown = loss_sum.detach().clone()
            dist.all_reduce(shown)
            if rank == 0:
                print(f"step {step} loss per token {(shown / tokens).item():.4f} ({int(tokens)} tokens)",
                      flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
