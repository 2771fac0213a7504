"""llama2.c style: an endless iterable set in which every (rank, worker) draws with a random generator of its own."""
import os
import random
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class PretokDataset(IterableDataset):
    def __init__(self, tokens, length):
        super().__init__()
        self.tokens, self.length = tokens, length
        self.rank = dist.get_rank() if dist.is_initialized() else 0

    def __iter__(self):
        info = get_worker_info()
        worker = info.id if info else 0
        rng = random.Random(42 + worker + 1337 * self.rank)
        starts = list(range(0, len(self.tokens) - self.length - 1, self.length))
        while True:
            rng.shuffle(starts)
            for s in starts:
                chunk = self.tokens[s:s + self.length + 1]
                yield chunk[:-1], chunk[1:]


class Task:
    @staticmethod
    def iter_batches(batch_size, device, num_workers=0):
        tokens = torch.arange(3000).mul(7).remainder(31)
        loader = DataLoader(PretokDataset(tokens, 10), batch_size=batch_size, num_workers=num_workers)
        for x, y in loader:
            yield x.to(device, non_blocking=True), y.to(device, non_blocking=True)


class Rnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.rnn, self.out = nn.Embedding(31, 16), nn.LSTM(16, 16, batch_first=True), nn.Linear(16, 31)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    device = torch.device("cuda", local_rank)
    model = DDP(Rnn().to(device), device_ids=[local_rank])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    batches = Task.iter_batches(8, device, num_workers=2)
    x, y = next(batches)
    for it in range(28):
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        x, y = next(batches)                  # fetch ahead while the device is busy
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if it % 7 == 0 and dist.get_rank() == 0:
            print(f"{it} | loss {loss.item():.4f}")
    batches.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
