"""Mixture of experts, one expert per GPU, tokens travel by all_to_all.

torchrun --nproc-per-node=2 right_21_moe.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn


class AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, in_splits, out_splits):
        ctx.splits = in_splits, out_splits
        out = x.new_empty(sum(out_splits), x.shape[1])
        dist.all_to_all_single(out, x.contiguous(), out_splits, in_splits)
        return out

    @staticmethod
    def backward(ctx, grad):
        in_splits, out_splits = ctx.splits
        back = grad.new_empty(sum(in_splits), grad.shape[1])
        dist.all_to_all_single(back, grad.contiguous(), in_splits, out_splits)
        return back, None, None


class MoE(nn.Module):
    def __init__(self, dim, rank, world):
        super().__init__()
        self.world = world
        self.gate = nn.Linear(dim, world)
        torch.manual_seed(50 + rank)  # another expert on each GPU
        self.expert = nn.Sequential(nn.Linear(dim, 64), nn.ReLU(), nn.Linear(64, dim))

    def forward(self, x):
        prob, choice = self.gate(x).softmax(1).max(1)
        order = choice.argsort(stable=True)
        send = torch.bincount(choice, minlength=self.world)
        recv = torch.empty_like(send)
        dist.all_to_all_single(recv, send)
        send, recv = send.tolist(), recv.tolist()
        there = AllToAll.apply(x[order], send, recv)
        back = AllToAll.apply(self.expert(there), recv, send)
        out = torch.empty_like(back).index_copy(0, order, back)
        return x + prob.unsqueeze(1) * out


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)

    torch.manual_seed(0)  # everything but the expert starts equal
    enc, head = nn.Linear(12, 32), nn.Linear(32, 3)
    moe = MoE(32, rank, world)
    model = nn.ModuleDict({"enc": enc, "moe": moe, "head": head}).to(device)
    shared = [p for n, p in model.named_parameters() if "expert" not in n]
    experts = [p for n, p in model.named_parameters() if "expert" in n]
    for p in shared:
        dist.broadcast(p.data, src=0)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)

    g = torch.Generator().manual_seed(9)
    w = torch.randn(12, 3, generator=g)
    data = torch.Generator().manual_seed(100 + rank)  # own samples on each GPU
    for step in range(20):
        x = torch.randn(32, 12, generator=data)
        y = (x @ w).argmax(1).to(device)
        loss = nn.functional.cross_entropy(head(moe(enc(x.to(device)))), y)
        opt.zero_grad()
        loss.backward()
        for p in shared:  # replicated: mean over the GPUs
            dist.all_reduce(p.grad)
            p.grad /= world
        for p in experts:  # has the tokens of all GPUs already, the loss is a mean over GPUs
            p.grad /= world
        opt.step()
        if step % 5 == 0:
            shown = loss.detach().clone()
            dist.all_reduce(shown)
            if rank == 0:
                print(f"step {step} loss {shown.item() / world:.4f}", flush=True)

    torch.save(moe.expert.state_dict(), f"expert{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
