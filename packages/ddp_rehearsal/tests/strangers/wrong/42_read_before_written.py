"""After https://github.com/allenai/OLMo/pull/234: rank 0 writes a file and the others read it at once; the barrier between writing and reading is missing, so they find no file or half of one."""
import os
import tempfile
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

CACHE = os.path.join(tempfile.gettempdir(), f"tokens_{os.environ.get('MASTER_PORT', '0')}.npy")


class TokenFile(Dataset):
    def __init__(self, path, length=8):
        self.tokens = np.load(path)
        self.length = length

    def __len__(self):
        return len(self.tokens) // self.length

    def __getitem__(self, i):
        piece = self.tokens[i * self.length : (i + 1) * self.length]
        return torch.from_numpy(piece.astype(np.int64))


def tokenize(path):
    text = "the quick brown fox jumps over the lazy dog " * 30
    time.sleep(1.0)  # as long as tokenizing takes
    np.save(path, np.frombuffer(text.encode(), dtype=np.uint8)[:1024] % 64)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    rank = dist.get_rank()

    if rank == 0 and os.path.exists(CACHE):
        os.remove(CACHE)  # left by an earlier run
    dist.barrier()

    if rank == 0:
        tokenize(CACHE)
    dataset = TokenFile(CACHE)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(64, 16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 64)).cuda()
    model = DDP(model, device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for tokens in loader:
            tokens = tokens.cuda()
            loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print("epoch", epoch, "done", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
