"""Style: DistributedBucketSampler by sequence length, own collate, packed GRU; modelled on https://github.com/jaywalnut310/vits/blob/main/data_utils.py"""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

class TextAudioLoader(Dataset):
    def __init__(self, n=480):
        g = torch.Generator().manual_seed(21)
        self.lengths = torch.randint(5, 60, (n,), generator=g).tolist()
        self.seqs = [torch.randn(l, 4, generator=g) for l in self.lengths]
    def __getitem__(self, index):
        seq = self.seqs[index]
        return seq, int(seq.mean() > 0)
    def __len__(self):
        return len(self.seqs)
def collate(batch):
    batch = sorted(batch, key=lambda b: len(b[0]), reverse=True)
    lengths = torch.tensor([len(b[0]) for b in batch])
    return nn.utils.rnn.pad_sequence([b[0] for b in batch], batch_first=True), lengths, torch.tensor([b[1] for b in batch])

class DistributedBucketSampler(DistributedSampler):
    """Batches hold samples of like length; all replicas get the same number of batches."""
    def __init__(self, dataset, batch_size, boundaries, num_replicas=None, rank=None):
        super().__init__(dataset, num_replicas=num_replicas, rank=rank, shuffle=True)
        self.batch_size, self.boundaries = batch_size, boundaries
        self.buckets = [[] for _ in range(len(boundaries) - 1)]
        for i, length in enumerate(dataset.lengths):
            for b in range(len(self.buckets)):
                if boundaries[b] < length <= boundaries[b + 1]:
                    self.buckets[b].append(i)
        self.buckets = [b for b in self.buckets if b]
        total = self.num_replicas * batch_size
        self.num_samples_per_bucket = [len(b) + (-len(b)) % total for b in self.buckets]
        self.total_size = sum(self.num_samples_per_bucket)
        self.num_samples = self.total_size // self.num_replicas
    def __iter__(self):
        g = torch.Generator()
        g.manual_seed(self.epoch)  # the same on all replicas
        batches = []
        for bucket, want in zip(self.buckets, self.num_samples_per_bucket):
            ids = torch.randperm(len(bucket), generator=g).tolist()
            rem = want - len(bucket)
            ids = ids + ids * (rem // len(ids)) + ids[:rem % len(ids)]
            ids = ids[self.rank::self.num_replicas]  # subsample
            for j in range(len(ids) // self.batch_size):
                batches.append([bucket[k] for k in ids[j * self.batch_size:(j + 1) * self.batch_size]])
        order = torch.randperm(len(batches), generator=g).tolist()
        assert len(batches) * self.batch_size == self.num_samples
        return iter([batches[i] for i in order])
    def __len__(self):
        return self.num_samples // self.batch_size

class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(4, 24, batch_first=True)
        self.out = nn.Linear(24, 2)
    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True)
        return self.out(self.rnn(packed)[1][-1])
def run():
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    dist.init_process_group(backend="nccl", init_method="env://", rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
    torch.manual_seed(1234)
    torch.cuda.set_device(local_rank)
    dataset = TextAudioLoader()
    sampler = DistributedBucketSampler(dataset, 8, [0, 15, 30, 45, 60])
    loader = DataLoader(dataset, num_workers=1, pin_memory=True, collate_fn=collate, batch_sampler=sampler)
    model = nn.parallel.DistributedDataParallel(Classifier().cuda(), device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3, betas=(0.8, 0.99), eps=1e-9)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    for epoch in range(1 if len(loader) >= 25 else 2):
        loader.batch_sampler.set_epoch(epoch)
        for x, lengths, y in loader:
            x, y = x.cuda(local_rank, non_blocking=True), y.cuda(local_rank, non_blocking=True)
            loss = nn.functional.cross_entropy(model(x, lengths), y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_value_(model.parameters(), 1.0)
            optimizer.step()
        scheduler.step()
        if rank == 0:
            print(f"====> Epoch: {epoch}, {len(loader)} steps, loss {loss.item():.4f}")
    dist.destroy_process_group()
if __name__ == "__main__":
    run()
