"""fairseq style: buckets by length, summed loss, gradients multiplied by world size over the global number of tokens."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

PAD, VOCAB = 0, 20


class Sentences(Dataset):
    def __init__(self, n=112):
        g = torch.Generator().manual_seed(0)
        lengths = torch.randint(3, 15, (n,), generator=g).tolist()
        self.items = [torch.randint(1, VOCAB, (l,), generator=g).sort().values for l in lengths]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class BucketBatches:
    """batches of similar length under a limit of tokens; the ranks take turns and get equally many"""

    def __init__(self, data, max_tokens, rank, world, seed=1):
        self.rank, self.world, self.seed, self.epoch = rank, world, seed, 0
        self.batches, batch = [], []
        for i in sorted(range(len(data)), key=lambda i: (len(data[i]), i)):
            if batch and (len(batch) + 1) * len(data[i]) > max_tokens:
                self.batches.append(batch)
                batch = []
            batch.append(i)
        self.batches.append(batch)

    def __len__(self):
        return len(self.batches) // self.world

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(len(self.batches), generator=g).tolist()[: len(self) * self.world]
        return iter([self.batches[i] for i in order[self.rank::self.world]])


class LM(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.emb, self.rnn, self.out = nn.Embedding(VOCAB, dim, padding_idx=PAD), nn.GRU(dim, dim, batch_first=True), nn.Linear(dim, VOCAB)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    world = dist.get_world_size()
    data = Sentences()
    batches = BucketBatches(data, max_tokens=64, rank=dist.get_rank(), world=world)
    loader = DataLoader(data, batch_sampler=batches, collate_fn=lambda b: pad_sequence(b, batch_first=True, padding_value=PAD))
    model = DDP(LM().to(device), device_ids=[local_rank])
    opt = torch.optim.Adam(model.parameters(), lr=5e-3, betas=(0.9, 0.98))
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda n: min((n + 1) / 8, (8 / (n + 1)) ** 0.5))
    for epoch in range(5):
        batches.epoch = epoch
        for seq in loader:
            seq = seq.to(device)
            target = seq[:, 1:]
            loss = nn.functional.cross_entropy(model(seq[:, :-1]).flatten(0, 1), target.flatten(), ignore_index=PAD, reduction="sum")
            stats = torch.stack([loss.detach(), (target != PAD).sum().float()])
            dist.all_reduce(stats)
            opt.zero_grad()
            loss.backward()                     # DDP: the sums' average over the ranks
            for p in model.parameters():
                p.grad.mul_(world / stats[1])   # now: the sum over all tokens divided by their number
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} nll/token {(stats[0] / stats[1]).item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
