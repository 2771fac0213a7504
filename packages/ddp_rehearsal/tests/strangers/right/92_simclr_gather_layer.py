"""SimCLR over the global batch: features are gathered with their gradients, every rank computes the same loss."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class GatherLayer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = [torch.zeros_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(out, x.contiguous())
        return tuple(out)

    @staticmethod
    def backward(ctx, *grads):
        # summed over the ranks here, divided by their number in DDP's average
        stacked = torch.stack(grads)
        dist.all_reduce(stacked)
        return stacked[dist.get_rank()]


class TwoViews(Dataset):
    def __init__(self, n=96):
        self.x = torch.randn(n, 14, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x = self.x[i]
        view = lambda: x * (torch.rand_like(x) > 0.2) + 0.1 * torch.randn_like(x)
        return view(), view()


def nt_xent(z1, z2, temperature=0.5):
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    n = len(z1)
    sim = z @ z.t() / temperature
    sim = sim.masked_fill(torch.eye(2 * n, dtype=torch.bool, device=z.device), -1e9)
    target = torch.cat([torch.arange(n, 2 * n), torch.arange(n)]).to(z.device)
    return F.cross_entropy(sim, target)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    torch.manual_seed(1 + dist.get_rank())          # own augmentations; DDP sends round the first weights
    data = TwoViews()
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler, drop_last=True)
    model = DDP(nn.Sequential(nn.Linear(14, 32), nn.ReLU(), nn.Linear(32, 8)).to(device), device_ids=[local_rank])
    opt = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9, weight_decay=1e-6)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=5 * len(loader))
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for a, b in loader:
            za, zb = model(torch.cat([a, b]).to(device)).chunk(2)
            za, zb = torch.cat(GatherLayer.apply(za)), torch.cat(GatherLayer.apply(zb))
            loss = nt_xent(za, zb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
