"""Style: Megatron-like tensor parallel layers by autograd functions, times data parallel groups; in the manner of https://github.com/NVIDIA/Megatron-LM"""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
_TP_GROUP = _DP_GROUP = None
def initialize_model_parallel(tp_size):
    """Ranks [0 1] [2 3] ... are tensor parallel; [0 2 ...] [1 3 ...] are data parallel."""
    global _TP_GROUP, _DP_GROUP
    world, rank = dist.get_world_size(), dist.get_rank()
    assert world % tp_size == 0
    for start in range(0, world, tp_size):
        group = dist.new_group(ranks := list(range(start, start + tp_size)))  # every rank makes every group
        _TP_GROUP = group if rank in ranks else _TP_GROUP
    for offset in range(tp_size):
        group = dist.new_group(ranks := list(range(offset, world, tp_size)))
        _DP_GROUP = group if rank in ranks else _DP_GROUP
class _CopyToModelParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)
    @staticmethod
    def backward(ctx, grad):
        dist.all_reduce(grad := grad.contiguous().clone(), group=_TP_GROUP)
        return grad
class _ReduceFromModelParallelRegion(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        dist.all_reduce(x := x.contiguous().clone(), group=_TP_GROUP)
        return x
    @staticmethod
    def backward(ctx, grad):
        return grad
def shard(full, dim):
    """This rank's part of a weight that all ranks of the TP group drew alike."""
    tp, r = dist.get_world_size(_TP_GROUP), dist.get_rank(_TP_GROUP)
    p = nn.Parameter(full.chunk(tp, dim=dim)[r].clone())
    p.tensor_model_parallel = True
    return p
class ParallelMLP(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w_in, self.b_in = shard(torch.randn(hidden, dim) * dim ** -0.5, 0), shard(torch.zeros(hidden), 0)
        self.w_out = shard(torch.randn(dim, hidden) * hidden ** -0.5, 1)
        self.b_out = nn.Parameter(torch.zeros(dim))  # added once, after the reduction
    def forward(self, x):
        h = F.gelu(F.linear(_CopyToModelParallelRegion.apply(x), self.w_in, self.b_in))
        return _ReduceFromModelParallelRegion.apply(F.linear(h, self.w_out)) + self.b_out
class Model(nn.Module):
    def __init__(self, vocab=40, dim=16):
        super().__init__()
        self.emb, self.norm = nn.Embedding(vocab, dim), nn.LayerNorm(dim)
        self.mlp, self.head = ParallelMLP(dim, 64), nn.Linear(dim, vocab)
    def forward(self, idx):
        return self.head((h := self.emb(idx)) + self.mlp(self.norm(h)))
def clip_grad_norm(params, max_norm):
    """Norm of the whole model: shards summed over the TP group, replicated tensors counted once."""
    sq = torch.zeros(2, device="cuda")
    for p in params:
        sq[0 if getattr(p, "tensor_model_parallel", False) else 1] += p.grad.float().pow(2).sum()
    dist.all_reduce(sharded := sq[:1].clone(), group=_TP_GROUP)
    norm = (sharded + sq[1:]).sqrt()
    for p in params:
        p.grad.mul_(torch.clamp(max_norm / (norm + 1e-6), max=1.0))
    return norm.item()
def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    initialize_model_parallel(tp_size=2)
    torch.manual_seed(1234)  # full weights are drawn alike, each rank keeps its part
    params = list((model := Model().cuda()).parameters())
    optimizer = torch.optim.AdamW(params, lr=3e-3)
    dp_rank, dp_size = dist.get_rank(_DP_GROUP), dist.get_world_size(_DP_GROUP)
    gen = torch.Generator().manual_seed(10 + dp_rank)  # ranks of one TP group read the same tokens
    for step in range(25):
        tokens = torch.randint(0, 40, (8, 13), generator=gen).cuda()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        for p in params:
            dist.all_reduce(p.grad, group=_DP_GROUP)
            p.grad.div_(dp_size)
        norm = clip_grad_norm(params, 1.0)
        optimizer.step()
        if dist.get_rank() == 0 and step % 8 == 0:
            print(f"step {step} loss {loss.item():.4f} grad norm {norm:.4f}")
    dist.destroy_process_group()
if __name__ == "__main__":
    main()
