"""Tiny language model trained from a token stream with DDP.

torchrun --nproc-per-node=2 wrong_01_stream_lm.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

VOCAB, SEQ = 64, 32


class TokenStream(IterableDataset):
    """Yields (input, target) windows cut from consecutive documents."""

    def __init__(self, num_docs):
        self.num_docs = num_docs

    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for doc in range(first, self.num_docs, step):
            g = torch.Generator().manual_seed(doc)
            tokens = torch.randint(0, VOCAB, (SEQ + 1,), generator=g)
            yield tokens[:-1], tokens[1:]


class TinyLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, 48)
        self.rnn = nn.GRU(48, 64, batch_first=True)
        self.out = nn.Linear(64, VOCAB)

    def forward(self, x):
        h, _ = self.rnn(self.emb(x))
        return self.out(h)


def main():
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    torch.manual_seed(0)

    model = DDP(TinyLM().to(device), device_ids=[local_rank])
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    # 2 workers, each one reads its own part of the documents
    loader = DataLoader(TokenStream(320), batch_size=16, num_workers=2, drop_last=True)

    for step, (x, y) in enumerate(loader):
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 5 == 0 and dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
