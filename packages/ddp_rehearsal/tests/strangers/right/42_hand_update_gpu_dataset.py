"""Style: notebook-like code with raw weight tensors, data set living on the GPU, update by hand under no_grad; after https://docs.pytorch.org/tutorials/beginner/nn_tutorial.html"""
import math
import os

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler

rank = int(os.environ["RANK"])
world_size = int(os.environ["WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl")


class GPUDataset(Dataset):
    """Small enough to lie on the device as a whole; no workers, no pinning."""

    def __init__(self, n=640):
        g = torch.Generator().manual_seed(0)  # CPU generator: the same numbers on every rank
        x = torch.randn(n, 20, generator=g)
        self.x = x.to(device)
        self.y = (x[:, :10].sum(1) > x[:, 10:].sum(1)).long().to(device)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]

    def __getitems__(self, indices):
        idx = torch.tensor(indices, device=device)
        return self.x[idx], self.y[idx]


weights = torch.randn(20, 16, device=device) / math.sqrt(20)
hidden_bias = torch.zeros(16, device=device)
weights2 = torch.randn(16, 2, device=device) / math.sqrt(16)
bias = torch.zeros(2, device=device)
params = [weights, hidden_bias, weights2, bias]
for p in params:
    dist.broadcast(p, src=0)  # start from rank 0's draw
    p.requires_grad_()
velocity = [torch.zeros_like(p) for p in params]


def log_softmax(x):
    return x - x.exp().sum(-1).log().unsqueeze(-1)


def model(xb):
    return log_softmax(torch.tanh(xb @ weights + hidden_bias) @ weights2 + bias)


def nll(input, target):
    return -input[range(target.shape[0]), target].mean()


loss_func = nll
ds = GPUDataset()
sampler = DistributedSampler(ds, num_replicas=world_size, rank=rank, shuffle=True)
dl = DataLoader(ds, batch_size=32 // world_size, sampler=sampler, collate_fn=lambda fetched: fetched)
lr, momentum, wd = 0.2, 0.9, 1e-4
for epoch in range(2):
    sampler.set_epoch(epoch)
    for xb, yb in dl:
        loss = loss_func(model(xb), yb)
        loss.backward()
        for p in params:
            dist.all_reduce(p.grad)
        with torch.no_grad():
            for p, v in zip(params, velocity):
                v.mul_(momentum).add_(p.grad / world_size + wd * p)
                p -= lr * v
                p.grad.zero_()
    with torch.no_grad():
        hits = torch.zeros(2, device=device)
        for xb, yb in dl:
            hits += torch.stack([(model(xb).argmax(1) == yb).float().sum(), torch.tensor(float(len(yb)), device=device)])
        dist.all_reduce(hits)
    if rank == 0:
        print(f"epoch {epoch}: train accuracy {(hits[0] / hits[1]).item():.3f} on {int(hits[1])}")
dist.destroy_process_group()
