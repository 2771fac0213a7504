"""After https://github.com/deepmodeling/deepmd-kit/pull/5397: each rank draws the task of the step from its own random state, so the ranks work on different tasks in the same step and their collectives do not fit together."""
import os
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

CLASSES = {"water": 3, "copper": 5}


class SharedDescriptor(nn.Module):
    def __init__(self):
        super().__init__()
        self.descriptor = nn.Sequential(nn.Linear(8, 20), nn.Tanh())
        self.fitting = nn.ModuleDict({task: nn.Linear(20, n) for task, n in CLASSES.items()})

    def forward(self, x, task):
        return self.fitting[task](self.descriptor(x))


def endless(task, classes, batch_size=8):
    g = torch.Generator().manual_seed(classes)
    x = torch.randn(64, 8, generator=g)
    data = TensorDataset(x, x[:, :classes].argmax(dim=1))
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=batch_size, sampler=sampler)
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


def class_weights(y, classes):
    counts = torch.bincount(y, minlength=classes).float()
    dist.all_reduce(counts)  # over the whole batch of all ranks
    return counts.sum() / (classes * counts.clamp(min=1.0))


def main(num_steps=24):
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    random.seed(100 + rank)

    model = SharedDescriptor().cuda()
    model = DistributedDataParallel(model, device_ids=[local_rank], find_unused_parameters=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    sources = {task: endless(task, n) for task, n in CLASSES.items()}

    for step in range(num_steps):
        task = random.choices(list(CLASSES), weights=[0.5, 0.5])[0]
        x, y = (t.cuda() for t in next(sources[task]))
        weight = class_weights(y, CLASSES[task])
        loss = nn.functional.cross_entropy(model(x, task), y, weight=weight)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 8 == 0:
            print("step", step, "task", task, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
