"""Several microbatches for each update, under no_sync, in bfloat16, on random windows of a text as in nanoGPT."""

import contextlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

dist.init_process_group(backend="nccl")
rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
device = f"cuda:{local_rank}"
torch.cuda.set_device(device)
torch.manual_seed(1337 + rank)
text = torch.arange(4000) * 7919 % 31
num_microbatches = 2


def get_batch():
    starts = torch.randint(len(text) - 9, (4,))
    X = torch.stack([text[i : i + 8] for i in starts])
    y = torch.stack([text[i + 1 : i + 9] for i in starts])
    return X.to(device), y.to(device)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(31, 16), nn.Linear(16, 31)

    def forward(self, tokens, targets=None):
        logits = self.head(F.gelu(self.embedding(tokens)))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


model = nn.parallel.DistributedDataParallel(Model().to(device), device_ids=[local_rank])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(5):
    for micro in range(num_microbatches):
        is_last = micro == num_microbatches - 1
        with contextlib.nullcontext() if is_last else model.no_sync():
            _, loss = model(*get_batch())
            loss = loss / num_microbatches
            loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
dist.destroy_process_group()
