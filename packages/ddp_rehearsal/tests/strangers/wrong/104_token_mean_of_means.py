"""Fine-tuning on answers of very different length, reduced from
https://github.com/huggingface/transformers/pull/34373
(each GPU divides by its own number of target tokens, then the gradients are averaged with equal weight)
"""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

VOCAB, LENGTH = 20, 16


class Answers(Dataset):
    def __init__(self, n=96):
        g = torch.Generator().manual_seed(8)
        self.tokens = torch.randint(0, VOCAB, (n, LENGTH + 1), generator=g)
        self.answer = torch.randint(1, LENGTH, (n,), generator=g)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        labels = self.tokens[i, 1:].clone()
        labels[: LENGTH - int(self.answer[i])] = -100   # the prompt is not learnt
        return self.tokens[i, :-1], labels


class TinyLM(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, VOCAB)

    def forward(self, ids):
        return self.head(self.rnn(self.emb(ids))[0])


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    data = Answers()
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=4, sampler=sampler, drop_last=True)
    model = DDP(TinyLM().to(device), device_ids=[local_rank])
    opt = torch.optim.SGD(model.parameters(), lr=0.2)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for ids, labels in loader:
            logits = model(ids.to(device))
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.to(device).flatten(), ignore_index=-100)
            opt.zero_grad()
            loss.backward()
            opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
