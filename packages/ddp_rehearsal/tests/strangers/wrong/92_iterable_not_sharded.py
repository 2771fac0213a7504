"""Streaming text classifier, reduced from
https://github.com/huggingface/datasets/issues/5360
(the stream is split between the loader's workers, but not between the GPUs)
"""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Stream(IterableDataset):
    def __init__(self, n, vocab=50):
        g = torch.Generator().manual_seed(11)
        self.tokens = torch.randint(0, vocab, (n, 12), generator=g)
        self.labels = (self.tokens.float().mean(1) > vocab / 2).long()

    def __iter__(self):
        info = get_worker_info()
        start, step = (info.id, info.num_workers) if info is not None else (0, 1)
        for i in range(start, len(self.tokens), step):
            yield self.tokens[i], self.labels[i]


class BagOfWords(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.EmbeddingBag(50, 16)
        self.head = nn.Linear(16, 2)

    def forward(self, t):
        return self.head(self.emb(t))


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    loader = DataLoader(Stream(256), batch_size=8, num_workers=2)
    model = DDP(BagOfWords().cuda(), device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for tokens, labels in loader:
        loss = nn.functional.cross_entropy(model(tokens.cuda()), labels.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print("last loss", loss.item())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
