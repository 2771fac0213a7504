"""Data parallelism by hand on a fast and a slow GPU: batches of 12 and 4, gradients weighted by the numbers of samples."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

GLOBAL_BATCH = 16


class ShareSampler:
    """cuts every global batch of one common permutation into pieces of the given sizes"""

    def __init__(self, n, shares, rank):
        self.n, self.shares, self.rank, self.epoch = n, shares, rank, 0

    def __len__(self):
        return self.n // GLOBAL_BATCH

    def __iter__(self):
        g = torch.Generator().manual_seed(7919 + self.epoch)
        order = torch.randperm(self.n, generator=g)[: len(self) * GLOBAL_BATCH].view(-1, GLOBAL_BATCH)
        for batch in order:
            yield batch.split(self.shares)[self.rank].tolist()


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    shares = [12, 4] if world == 2 else [GLOBAL_BATCH // world] * world
    x = torch.randn(100, 9, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(x, (x ** 2).sum(1, keepdim=True).log())
    sampler = ShareSampler(len(data), shares, rank)
    loader = DataLoader(data, batch_sampler=sampler)

    model = nn.Sequential(nn.Linear(9, 32), nn.Tanh(), nn.Linear(32, 1)).to(device)
    with torch.no_grad():
        for p in model.parameters():
            dist.broadcast(p, src=0)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(5):
        sampler.epoch = epoch
        seen = torch.zeros(2, device=device)
        for xb, yb in loader:
            opt.zero_grad()
            loss_sum = nn.functional.mse_loss(model(xb.to(device)), yb.to(device), reduction="sum")
            loss_sum.backward()
            flat = torch.cat([p.grad.flatten() for p in model.parameters()]
                             + [torch.tensor([float(len(xb)), loss_sum.item()], device=device)])
            dist.all_reduce(flat)
            count = flat[-2].item()
            grads = (flat[:-2] / count).split([p.numel() for p in model.parameters()])
            for p, g in zip(model.parameters(), grads):
                p.grad.copy_(g.view_as(p))
            opt.step()
            seen += flat[-2:]
        if rank == 0:
            print(f"epoch {epoch}: {int(seen[0])} samples, mse {(seen[1] / seen[0]).item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
