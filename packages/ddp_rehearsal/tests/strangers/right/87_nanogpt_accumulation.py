"""nanoGPT style: random crops drawn per rank, gradient accumulation with the sync flag, bf16, hand-made cosine schedule."""
import math
import os
import torch
import torch.nn as nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

block_size, batch_size, vocab = 12, 4, 24
max_iters, warmup, lr, min_lr, grad_clip, eval_interval = 28, 4, 3e-3, 3e-4, 1.0, 7

init_process_group(backend="nccl")
ddp_rank, ddp_local_rank, ddp_world_size = (int(os.environ[k]) for k in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
device = f"cuda:{ddp_local_rank}"
torch.cuda.set_device(device)
master_process = ddp_rank == 0
gradient_accumulation_steps = 4
assert gradient_accumulation_steps % ddp_world_size == 0
gradient_accumulation_steps //= ddp_world_size
torch.manual_seed(1337 + ddp_rank)          # every process draws its own crops

text = torch.randint(0, vocab, (4000,), generator=torch.Generator().manual_seed(0)).cumsum(0) % vocab
splits = {"train": text[:3600], "val": text[3600:]}


def get_batch(split):
    data = splits[split]
    ix = torch.randint(len(data) - block_size - 1, (batch_size,)).tolist()
    x = torch.stack([data[i:i + block_size] for i in ix])
    y = torch.stack([data[i + 1:i + 1 + block_size] for i in ix])
    return x.to(device), y.to(device)


class GPT(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, dim), nn.Embedding(block_size, dim)
        self.block = nn.TransformerEncoderLayer(dim, 2, 32, dropout=0.1, batch_first=True, norm_first=True)
        self.lm_head = nn.Linear(dim, vocab, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, idx, targets):
        h = self.wte(idx) + self.wpe(torch.arange(idx.size(1), device=idx.device))
        mask = nn.Transformer.generate_square_subsequent_mask(idx.size(1), device=idx.device)
        logits = self.lm_head(self.block(h, src_mask=mask, is_causal=True))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def get_lr(it):
    if it < warmup:
        return lr * (it + 1) / (warmup + 1)
    ratio = (it - warmup) / (max_iters - warmup)
    return min_lr + 0.5 * (1 + math.cos(math.pi * ratio)) * (lr - min_lr)


model = DDP(GPT().to(device), device_ids=[ddp_local_rank])
raw_model = model.module
optimizer = torch.optim.AdamW(raw_model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.1)
ctx = torch.amp.autocast(device_type="cuda", dtype=torch.bfloat16)
for it in range(max_iters):
    for group in optimizer.param_groups:
        group["lr"] = get_lr(it)
    if it % eval_interval == 0 and master_process:      # only the master estimates, on the bare model
        raw_model.eval()
        with torch.no_grad(), ctx:
            print(f"iter {it}: val {sum(raw_model(*get_batch('val')).item() for _ in range(3)) / 3:.3f}")
        raw_model.train()
    for micro_step in range(gradient_accumulation_steps):
        model.require_backward_grad_sync = micro_step == gradient_accumulation_steps - 1
        x, y = get_batch("train")
        with ctx:
            loss = model(x, y) / gradient_accumulation_steps
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
destroy_process_group()
