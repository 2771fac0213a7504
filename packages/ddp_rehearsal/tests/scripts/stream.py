"""A stream of examples that ranks and workers divide; the evaluation counts each example once."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, Subset, TensorDataset, get_worker_info


class Numbers(IterableDataset):
    def __iter__(self):
        rank, world_size = dist.get_rank(), dist.get_world_size()
        worker, workers = get_worker_info().id, get_worker_info().num_workers
        for i in range(rank * workers + worker, 240, world_size * workers):
            yield torch.tensor([i % 7, i % 11, i % 13]) / 10.0, i % 2


def main():
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    torch.manual_seed(6)
    model = DistributedDataParallel(nn.Linear(3, 2).cuda(), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Numbers(), batch_size=10, num_workers=2)
    for X, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(X.cuda()), y.cuda()).backward()
        optimizer.step()
    test = TensorDataset(torch.rand(33, 3), torch.randint(2, (33,)))
    mine = DataLoader(Subset(test, range(rank, len(test), dist.get_world_size())), batch_size=8)
    counts = torch.zeros(2, device="cuda")
    with torch.no_grad():
        for X, y in mine:
            counts += torch.stack([(model.module(X.cuda()).argmax(1) == y.cuda()).sum(), torch.tensor(len(y)).cuda()])
    dist.all_reduce(counts)
    if rank == 0:
        print("right", counts.tolist(), DistributedSampler.__name__)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
