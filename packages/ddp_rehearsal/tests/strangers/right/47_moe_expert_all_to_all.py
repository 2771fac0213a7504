"""Style: mixture of experts, one expert per rank, tokens exchanged by all_to_all_single with uneven splits; in the manner of FastMoE, https://arxiv.org/abs/2103.13262"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

class AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, out_splits, in_splits):
        ctx.splits = (in_splits, out_splits)
        out = x.new_empty((sum(out_splits), x.shape[1]))
        dist.all_to_all_single(out, x.contiguous(), out_splits, in_splits)
        return out

    @staticmethod
    def backward(ctx, grad):
        out_splits, in_splits = ctx.splits  # the way back
        out = grad.new_empty((sum(out_splits), grad.shape[1]))
        dist.all_to_all_single(out, grad.contiguous(), out_splits, in_splits)
        return out, None, None

class MoE(nn.Module):
    """Top-1 routing without dropping; this rank holds expert number 'rank'."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.world = dist.get_world_size()
        self.gate = nn.Linear(dim, self.world, bias=False)
        self.expert = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))

    def forward(self, x):
        probs = self.gate(x).softmax(-1)
        weight, choice = probs.max(-1)
        order = choice.argsort(stable=True)
        counts = torch.bincount(choice, minlength=self.world)
        incoming = torch.empty_like(counts)
        dist.all_to_all_single(incoming, counts)
        send, recv = counts.tolist(), incoming.tolist()
        tokens = AllToAll.apply(x[order], recv, send)
        back = AllToAll.apply(self.expert(tokens), send, recv)
        y = torch.zeros_like(x).index_copy(0, order, back) * weight[:, None]
        fraction = counts.float() / len(x)
        aux = self.world * (fraction * probs.mean(0)).sum()  # load balancing
        return x + y, aux

class Net(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.stem, self.moe, self.head = nn.Linear(8, dim), MoE(dim, 32), nn.Linear(dim, 3)

    def forward(self, x):
        h, aux = self.moe(torch.tanh(self.stem(x)))
        return self.head(h), aux

def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(20 + rank)  # each expert starts from its own draw
    model = Net().cuda()
    experts = [p for n, p in model.named_parameters() if ".expert." in n]
    dense = [p for n, p in model.named_parameters() if ".expert." not in n]
    for p in dense:
        dist.broadcast(p.data, src=0)  # the dense part is replicated
    optimizer = torch.optim.Adam([{"params": dense}, {"params": experts, "lr": 5e-3}], lr=2e-3)
    gen = torch.Generator().manual_seed(300 + rank)
    for step in range(30):
        x = torch.randn(64, 8, generator=gen).cuda()
        y = x[:, :3].abs().argmax(1)
        logits, aux = model(x)
        loss = F.cross_entropy(logits, y) + 0.01 * aux
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        for p in dense:
            dist.all_reduce(p.grad)
            p.grad /= world
        for p in experts:  # has already collected the tokens of all ranks: only the mean is missing
            p.grad /= world
        optimizer.step()
        if step % 10 == 0:
            stats = torch.stack([loss.detach(), aux.detach()])
            dist.all_reduce(stats)
            if rank == 0:
                print(f"step {step} loss {stats[0].item() / world:.4f} balance {stats[1].item() / world:.3f}")
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
