"""Partial-FC style: the backbone is data parallel, the class centres are split by class, so they differ between ranks."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(out, x.contiguous())
        ctx.n = len(x)
        return torch.cat(out)

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous().clone()
        dist.all_reduce(grad)               # every rank holds the part that went through its classes
        mine = grad[dist.get_rank() * ctx.n:(dist.get_rank() + 1) * ctx.n]
        return mine * dist.get_world_size()  # DDP will divide the backbone's gradients again


class DistCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, label):        # label: -1 where the class belongs to another rank
        top = logits.max(1, keepdim=True).values
        dist.all_reduce(top, dist.ReduceOp.MAX)
        e = (logits - top).exp()
        total = e.sum(1, keepdim=True)
        dist.all_reduce(total)
        prob = e / total
        mine = torch.where(label >= 0)[0]
        p = torch.zeros(len(logits), device=logits.device)
        p[mine] = prob[mine, label[mine]]
        dist.all_reduce(p)
        ctx.save_for_backward(prob, mine, label)
        return -p.clamp_min(1e-30).log().mean()

    @staticmethod
    def backward(ctx, grad):
        prob, mine, label = ctx.saved_tensors
        g = prob.clone()
        g[mine, label[mine]] -= 1
        return g / len(prob) * grad, None


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    classes, dim = 8, 16
    local = classes // world
    g = torch.Generator().manual_seed(0)
    y = torch.arange(96) % classes
    x = torch.randn(classes, 10, generator=g)[y] + 0.2 * torch.randn(96, 10, generator=g)
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler, drop_last=True)
    backbone = DDP(nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, dim)).to(device), device_ids=[local_rank])
    torch.manual_seed(50 + rank)
    centres = nn.Parameter(0.1 * torch.randn(local, dim, device=device))
    opt = torch.optim.SGD([{"params": backbone.parameters()}, {"params": [centres]}], lr=0.1, momentum=0.9)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            feats = AllGather.apply(backbone(xb.to(device)))
            yb = yb.to(device)
            labels = [torch.empty_like(yb) for _ in range(world)]
            dist.all_gather(labels, yb)
            label = torch.cat(labels) - rank * local
            label[(label < 0) | (label >= local)] = -1
            logits = 8 * F.linear(F.normalize(feats), F.normalize(centres))
            loss = DistCrossEntropy.apply(logits, label)
            opt.zero_grad()
            loss.backward()
            opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
