"""Recommender: one embedding table per rank (model parallel, exchanged by all_to_all), the dense part data parallel."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x)
        return out

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        out = torch.empty_like(grad)
        dist.all_to_all_single(out, grad)
        return out


class Dense(nn.Module):
    def __init__(self, tables, dim):
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(6, dim), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(dim * (tables + 1), 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, numeric, embedded):
        return self.top(torch.cat([self.bottom(numeric), embedded], 1)).squeeze(1)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    rows, dim, n = 30, 8, 96
    g = torch.Generator().manual_seed(0)
    numeric = torch.randn(n, 6, generator=g)
    cats = torch.randint(0, rows, (n, world), generator=g)        # column t is looked up in table t, on rank t
    clicks = ((cats.sum(1) % 2 == 0) ^ (numeric[:, 0] > 0)).float()
    data = TensorDataset(numeric, cats, clicks)
    sampler = DistributedSampler(data, shuffle=True, drop_last=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler, drop_last=True)

    torch.manual_seed(rank)
    table = nn.Embedding(rows, dim).to(device)                    # another one on each rank
    dense = DDP(Dense(world, dim).to(device), device_ids=[local_rank])
    opt_dense = torch.optim.Adam(dense.parameters(), lr=1e-2)
    opt_table = torch.optim.Adagrad(table.parameters(), lr=5e-2)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for num, cat, click in loader:
            ids = cat.to(device).t().contiguous()                 # [table, batch]
            wanted = torch.empty_like(ids)                        # [asking rank, batch]
            dist.all_to_all_single(wanted, ids)
            vectors = AllToAll.apply(table(wanted))               # [table, batch, dim]
            embedded = vectors.permute(1, 0, 2).flatten(1)
            loss = nn.functional.binary_cross_entropy_with_logits(dense(num.to(device), embedded), click.to(device))
            opt_dense.zero_grad()
            opt_table.zero_grad()
            loss.backward()
            table.weight.grad.div_(world)                         # the losses' mean over the ranks, as in the dense part
            opt_dense.step()
            opt_table.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
