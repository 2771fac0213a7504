"""WebDataset-like shards: cached once under a file lock, shuffled per epoch, split by rank and then by worker."""
import fcntl
import os
import random
import shutil
import tempfile
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHARDS, PER_SHARD = 8, 24


def prepare(folder):
    """whichever rank comes first builds the cache, the other finds it ready"""
    with open(os.path.join(folder, ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(os.path.join(folder, "READY")):
            g = torch.Generator().manual_seed(0)
            for s in range(SHARDS):
                x = torch.randn(PER_SHARD, 5, generator=g)
                torch.save({"x": x, "y": x.sin().sum(1, keepdim=True)}, os.path.join(folder, f"shard-{s:05d}.pt"))
            open(os.path.join(folder, "READY"), "w").close()
    return sorted(os.path.join(folder, f) for f in os.listdir(folder) if f.startswith("shard-"))


class Shards(IterableDataset):
    def __init__(self, urls, rank, world):
        self.urls, self.rank, self.world, self.epoch = urls, rank, world, 0

    def __iter__(self):
        info = get_worker_info()
        wid, workers = (info.id, info.num_workers) if info else (0, 1)
        urls = list(self.urls)
        random.Random(self.epoch).shuffle(urls)               # the same order everywhere
        mine = urls[self.rank::self.world][wid::workers]
        rng = random.Random(1000 * self.epoch + 10 * self.rank + wid)
        buffer = []
        for url in mine:
            shard = torch.load(url)
            for pair in zip(shard["x"], shard["y"]):
                buffer.append(pair)
                if len(buffer) >= 16:
                    yield buffer.pop(rng.randrange(len(buffer)))
        rng.shuffle(buffer)
        yield from buffer


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    box = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)
    dataset = Shards(prepare(box[0]), rank, world)
    loader = DataLoader(dataset, batch_size=8, num_workers=2)
    model = DDP(nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 1)).cuda(), device_ids=[local_rank])
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(3):
        dataset.epoch = epoch
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x.cuda(non_blocking=True)), y.cuda(non_blocking=True))
            opt.zero_grad()
            loss.backward()
            opt.step()
    dist.barrier()
    if rank == 0:
        shutil.rmtree(box[0])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
