"""Style: class-balanced endless sampler that strides one common stream over the ranks; in the manner of detectron2's https://github.com/facebookresearch/detectron2/blob/main/detectron2/data/samplers/distributed_sampler.py"""
import itertools
import os
import random

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

class WeightedTrainingSampler(Sampler):
    """Infinite stream of weighted draws; the ranks take every world-th element of it."""

    def __init__(self, weights, seed):
        self._weights = torch.as_tensor(weights, dtype=torch.double)
        self._seed = int(seed)
        self._rank, self._world_size = dist.get_rank(), dist.get_world_size()

    def __iter__(self):
        yield from itertools.islice(self._infinite_indices(), self._rank, None, self._world_size)

    def _infinite_indices(self):
        g = torch.Generator()
        g.manual_seed(self._seed)
        while True:
            yield from torch.multinomial(self._weights, len(self._weights), replacement=True, generator=g).tolist()

class LongTail(Dataset):
    def __init__(self, n=400, classes=4):
        rng = np.random.default_rng(4)
        p = 0.5 ** np.arange(1, classes + 1)
        self.y = rng.choice(classes, n, p=p / p.sum())
        self.x = (rng.standard_normal((n, 10)) + self.y[:, None]).astype(np.float32)
    def __len__(self):
        return len(self.y)
    def __getitem__(self, i):
        x = torch.from_numpy(self.x[i])
        if random.random() < 0.5:  # augmentation in the worker
            x = x + 0.05 * torch.randn(10)
        return x, int(self.y[i])

def worker_init_reset_seed(worker_id):
    seed = (torch.initial_seed() + 7919 * int(os.environ["RANK"])) % 2 ** 31
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)

def shared_random_seed():
    seeds = [None] * dist.get_world_size()
    dist.all_gather_object(seeds, int(np.random.default_rng().integers(2 ** 31)))
    return seeds[0]  # all ranks agree on what rank 0 drew

class SimpleTrainer:
    def __init__(self, model, data_loader, optimizer):
        self.model, self.optimizer = model, optimizer
        self._data_loader_iter = iter(data_loader)
    def train(self, max_iter):
        self.model.train()
        for self.iter in range(max_iter):
            self.run_step()
    def run_step(self):
        x, y = next(self._data_loader_iter)
        losses = nn.functional.cross_entropy(self.model(x.cuda(non_blocking=True)), y.cuda(non_blocking=True))
        self.optimizer.zero_grad()
        losses.backward()
        self.optimizer.step()
        gathered = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
        dist.gather_object({"total_loss": losses.item()}, gathered, dst=0)
        if gathered and self.iter % 10 == 0:
            print(f"iter {self.iter} total_loss {np.mean([m['total_loss'] for m in gathered]):.4f}")

def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    dataset = LongTail()
    weights = 1.0 / np.bincount(dataset.y)[dataset.y]
    sampler = WeightedTrainingSampler(weights, shared_random_seed())
    loader = DataLoader(dataset, batch_size=32 // dist.get_world_size(), sampler=sampler, num_workers=1,
                        worker_init_fn=worker_init_reset_seed, pin_memory=True)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 4)).cuda()
    model = nn.parallel.DistributedDataParallel(model, device_ids=[local_rank])
    trainer = SimpleTrainer(model, loader, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    trainer.train(40)
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
