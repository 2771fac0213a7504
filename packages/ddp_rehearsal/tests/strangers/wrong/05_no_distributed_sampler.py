"""After https://github.com/Shark-NLP/DiffuSeq/issues/37: the DataLoader has no DistributedSampler, so every GPU goes through the same batches of the whole data set and the second GPU adds nothing."""
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class SentencePairs(Dataset):
    def __init__(self, size, vocab, length):
        g = torch.Generator().manual_seed(1)
        self.source = torch.randint(1, vocab, (size, length), generator=g)
        self.target = self.source.flip(1)

    def __len__(self):
        return self.source.size(0)

    def __getitem__(self, index):
        return self.source[index], self.target[index]


class Denoiser(nn.Module):
    def __init__(self, vocab, width):
        super().__init__()
        self.word = nn.Embedding(vocab, width)
        self.body = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, vocab)

    def forward(self, tokens):
        hidden, _ = self.body(self.word(tokens))
        return self.head(hidden)


def load_data(args):
    data = SentencePairs(args.size, args.vocab, args.length)
    return DataLoader(data, batch_size=args.batch_size, shuffle=True, drop_last=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--size", type=int, default=80)
    p.add_argument("--vocab", type=int, default=20)
    p.add_argument("--length", type=int, default=5)
    p.add_argument("--batch_size", type=int, default=8)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--seed", type=int, default=102)
    args = p.parse_args()

    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl")
    torch.manual_seed(args.seed)

    model = DDP(Denoiser(args.vocab, 16).cuda(gpu), device_ids=[gpu])
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    loader = load_data(args)
    for epoch in range(args.epochs):
        for source, target in loader:
            logits = model(source.cuda(gpu))
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), target.cuda(gpu).flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        mean = loss.detach()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        if dist.get_rank() == 0:
            print("epoch", epoch, "loss", round(mean.item(), 3))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
