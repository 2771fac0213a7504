"""Multi-task training, tasks weighted by their averaged loss.

torchrun --nproc-per-node=2 wrong_18_multitask.py
"""
import os
from collections import defaultdict

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

TASKS = ["depth", "normals", "edges"]


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(12, 64), nn.ReLU())
        self.out = nn.Linear(64, len(TASKS))

    def forward(self, x):
        return self.out(self.trunk(x))


def main():
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    torch.manual_seed(0)

    g = torch.Generator().manual_seed(6)
    x = torch.randn(480, 12, generator=g)
    task = torch.randint(0, 3, (480,), generator=g)
    scale = torch.tensor([1.0, 5.0, 0.2])
    y = scale[task] * x[torch.arange(480), task]
    data = TensorDataset(x, task, y)
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=24, sampler=sampler)

    model = DDP(MultiTask().to(device), device_ids=[local_rank])
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)

    for epoch in range(2):
        sampler.set_epoch(epoch)
        for xb, tb, yb in loader:
            out = model(xb.to(device))
            errors = (out.gather(1, tb.to(device).unsqueeze(1)).squeeze(1) - yb.to(device)) ** 2
            per_task = defaultdict(list)
            for i, t in enumerate(tb.tolist()):
                per_task[TASKS[t]].append(errors[i])
            losses = {name: torch.stack(v).mean() for name, v in per_task.items()}

            # mean of every task's loss over the GPUs gives the weights
            weights = {}
            for name, value in losses.items():
                avg = value.detach().clone()
                dist.all_reduce(avg)
                weights[name] = 1.0 / (avg / dist.get_world_size() + 1e-3)

            loss = sum(weights[n] * losses[n] for n in losses)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} " + " ".join(f"{n}={float(w):.3f}" for n, w in sorted(weights.items())),
                  flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
