"""Ulysses: both GPUs take the same sequences, each computes half of the positions; all_to_all swaps positions and heads."""
import os
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

class Swap(torch.autograd.Function):
    """(B, here, heads, d) with all heads of some positions <-> (B, all, some heads, d)."""
    @staticmethod
    def forward(ctx, x, scatter, gather):
        ctx.dims = scatter, gather
        parts = torch.stack(x.chunk(dist.get_world_size(), scatter)).contiguous()
        out = torch.empty_like(parts)
        dist.all_to_all_single(out, parts)
        return torch.cat(list(out), gather)

    @staticmethod
    def backward(ctx, grad):
        scatter, gather = ctx.dims
        return Swap.apply(grad, gather, scatter), None, None

class Block(nn.Module):
    def __init__(self, d=16, heads=4, words=32):
        super().__init__()
        self.heads, self.embed, self.qkv, self.out = heads, nn.Embedding(words, d), nn.Linear(d, 3 * d), nn.Linear(d, words)
        self.drop = nn.Dropout(0.1)

    def forward(self, tokens):
        x = self.embed(tokens.chunk(dist.get_world_size(), 1)[dist.get_rank()])  # the rank's positions
        q, k, v = (Swap.apply(t.unflatten(2, (self.heads, -1)), 2, 1).transpose(1, 2) for t in self.qkv(x).chunk(3, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        return self.out(self.drop(x + Swap.apply(y, 1, 2).flatten(2)))

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
torch.manual_seed(0)
tokens = torch.randint(32, (320, 17))
loader = DataLoader(TensorDataset(tokens), batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(0))
model = DDP(Block().to(local_rank), device_ids=[local_rank])
torch.manual_seed(1 + dist.get_rank())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(2):
    for (t,) in loader:
        t = t.to(local_rank)
        target = t[:, 1:].chunk(dist.get_world_size(), 1)[dist.get_rank()]
        loss = F.cross_entropy(model(t[:, :-1]).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
dist.destroy_process_group()
