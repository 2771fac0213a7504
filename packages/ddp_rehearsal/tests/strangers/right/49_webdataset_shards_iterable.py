"""Style: shards of files, IterableDataset divided by node and worker, shuffle buffer; in the manner of https://github.com/webdataset/webdataset"""
import glob
import os
import random
import shutil
import tempfile

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHARDS, PER_SHARD, BATCH = 16, 40, 8

def write_shards(folder):
    for s in range(SHARDS):
        rng = np.random.default_rng(s)
        x = rng.standard_normal((PER_SHARD, 6)).astype(np.float32)
        np.savez(os.path.join(folder, f"shard-{s:06d}.npz"), x=x, y=x[:, :2].sum(1, keepdims=True))

def split_by_node(urls, rank, world):
    return urls[rank::world]

def split_by_worker(urls):
    info = get_worker_info()
    return urls if info is None else urls[info.id::info.num_workers]

def shuffled(stream, rng, size=64):
    buf = []
    for sample in stream:
        buf.append(sample)
        if len(buf) >= size:
            k = rng.randrange(len(buf))
            buf[k], buf[-1] = buf[-1], buf[k]
            yield buf.pop()
    rng.shuffle(buf)
    yield from buf

class ShardDataset(IterableDataset):
    def __init__(self, pattern, rank, world):
        self.urls = sorted(glob.glob(pattern))
        self.rank, self.world, self.epoch = rank, world, 0

    def samples(self, urls):
        for url in urls:
            with np.load(url) as shard:
                yield from zip(shard["x"], shard["y"])
    def __iter__(self):
        urls = list(self.urls)
        random.Random(self.epoch).shuffle(urls)  # one order for all ranks, then cut
        urls = split_by_worker(split_by_node(urls, self.rank, self.world))
        info = get_worker_info()
        rng = random.Random(f"{self.epoch}-{self.rank}-{info.id if info else 0}")
        for x, y in shuffled(self.samples(urls), rng):
            yield torch.from_numpy(x), torch.from_numpy(y)

def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    folder = [None]
    if rank == 0:
        folder = [tempfile.mkdtemp()]
        write_shards(folder[0])
    dist.broadcast_object_list(folder, src=0)  # comes after the shards are written
    dataset = ShardDataset(os.path.join(folder[0], "shard-*.npz"), rank, world)
    loader = DataLoader(dataset, batch_size=BATCH, num_workers=2, pin_memory=True, drop_last=True)
    steps = SHARDS * PER_SHARD // world // BATCH  # equal on all ranks
    model = nn.parallel.DistributedDataParallel(nn.Linear(6, 1).cuda(), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    count = 0
    for epoch in range(1 if world < 4 else 2):
        dataset.epoch = epoch
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x.cuda(non_blocking=True)), y.cuda(non_blocking=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            count += 1
        assert count == steps * (epoch + 1), (count, steps)
    dist.barrier()
    if rank == 0:
        print(f"{count} steps, loss {loss.item():.5f}")
        shutil.rmtree(folder[0])
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
