"""After https://github.com/pytorch/pytorch/issues/47260: two forward passes through DDP are followed by two separate backward calls; only the first one is reduced, the gradients of the second stay local and the ranks drift."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_loader(count, batch, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 12, generator=g)
    data = TensorDataset(x, x[:, :3].argmax(dim=1))
    sampler = DistributedSampler(data, shuffle=True, drop_last=True)
    return DataLoader(data, batch_size=batch, sampler=sampler), sampler


def main():
    rank, gpu = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl")
    device = torch.device("cuda", gpu)

    torch.manual_seed(13)
    student = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 3)).to(device)
    student = DDP(student, device_ids=[gpu])
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)

    labeled, labeled_sampler = make_loader(64, 8, seed=1)
    unlabeled, unlabeled_sampler = make_loader(128, 16, seed=2)

    for epoch in range(4):
        labeled_sampler.set_epoch(epoch)
        unlabeled_sampler.set_epoch(epoch)
        for (x, y), (u, _) in zip(labeled, unlabeled):
            x, y, u = x.to(device), y.to(device), u.to(device)
            optimizer.zero_grad()
            out_x = student(x)
            out_u = student(u)

            supervised = nn.functional.cross_entropy(out_x, y)
            supervised.backward()

            p = out_u.softmax(dim=1)
            entropy = -(p * p.clamp(min=1e-6).log()).sum(dim=1).mean()
            (0.1 * entropy).backward()
            optimizer.step()

        losses = torch.stack([supervised.detach(), entropy.detach()])
        dist.all_reduce(losses, op=dist.ReduceOp.AVG)
        if rank == 0:
            print(f"epoch {epoch}: supervised {losses[0].item():.3f} entropy {losses[1].item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
