"""IterableDataset divided by rank and by worker, the same number of batches on each GPU.

torchrun --nproc-per-node=2 right_16_iterable.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Stream(IterableDataset):
    def __init__(self, total, rank, world, seed=0):
        self.total, self.rank, self.world, self.seed = total, rank, world, seed
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch  # the workers are started anew every epoch and see it

    def __iter__(self):
        info = get_worker_info()
        wid, workers = (info.id, info.num_workers) if info else (0, 1)
        readers = self.world * workers
        reader = self.rank * workers + wid
        g = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(self.total, generator=g)
        # equal parts for all readers, the few left over are skipped this epoch
        for i in order[reader:self.total // readers * readers:readers].tolist():
            yield self.read(i)

    @staticmethod
    def read(i):
        g = torch.Generator().manual_seed(1000 + i)
        x = torch.randn(10, generator=g)
        return x, (x[:3].sum() > 0).long()


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    torch.manual_seed(0)

    dataset = Stream(330, rank, world)
    loader = DataLoader(dataset, batch_size=16, num_workers=2)
    model = DDP(nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2)).to(device),
                device_ids=[local_rank])
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    for epoch in range(2):
        dataset.set_epoch(epoch)
        sums = torch.zeros(2, dtype=torch.float64, device=device)
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sums[0] += loss.item() * len(y)
            sums[1] += len(y)
        dist.all_reduce(sums)
        if rank == 0:
            print(f"epoch {epoch} loss {(sums[0] / sums[1]).item():.4f} samples {int(sums[1])}", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
