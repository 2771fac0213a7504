"""After https://github.com/modelscope/FunASR/pull/3472: with gradient accumulation the condition for no_sync() is off by one: the first micro batch is synchronized and the last, on which the optimizer steps, is not, so each rank steps with local gradients."""
import os
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Utterances(Dataset):
    def __init__(self, n=160):
        g = torch.Generator().manual_seed(9)
        self.feats = torch.randn(n, 10, 8, generator=g)
        self.tokens = (self.feats.sum(dim=(1, 2)) > 0).long()

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return self.feats[i], self.tokens[i]


class Recognizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(8, 12, batch_first=True)
        self.out = nn.Linear(12, 2)

    def forward(self, feats):
        return self.out(self.rnn(feats)[0][:, -1])


class Trainer:
    accum_grad = 4

    def __init__(self, local_rank):
        self.device = torch.device("cuda", local_rank)
        torch.manual_seed(0)
        self.model = DistributedDataParallel(Recognizer().to(self.device), device_ids=[local_rank])
        self.optim = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def train_epoch(self, loader):
        self.optim.zero_grad()
        for batch_idx, (feats, tokens) in enumerate(loader):
            context = self.model.no_sync if batch_idx % self.accum_grad != 0 else nullcontext
            with context():
                logits = self.model(feats.to(self.device))
                loss = nn.functional.cross_entropy(logits, tokens.to(self.device)) / self.accum_grad
                loss.backward()
            if (batch_idx + 1) % self.accum_grad == 0:
                self.optim.step()
                self.optim.zero_grad()


if __name__ == "__main__":
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    data = Utterances()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    trainer = Trainer(rank)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        trainer.train_epoch(loader)
        if dist.get_rank() == 0:
            print("epoch", epoch, "done", flush=True)
    dist.destroy_process_group()
