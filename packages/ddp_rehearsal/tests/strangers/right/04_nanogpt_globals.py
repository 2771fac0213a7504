"""Style: single-file GPT trainer with globals, bf16 autocast and gradient accumulation; modelled on train.py of the public nanoGPT repository"""
import math, os, tempfile, time
from contextlib import nullcontext
import numpy as np
import torch
import torch.nn as nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
max_iters, eval_interval, eval_iters = 24, 12, 2
gradient_accumulation_steps = 4  # used to simulate larger batch sizes
batch_size, block_size, vocab_size, n_embd, n_head = 4, 32, 65, 32, 4
learning_rate, min_lr, warmup_iters, lr_decay_iters, grad_clip = 1e-3, 1e-4, 5, 24, 1.0
dtype = 'bfloat16'
ddp = int(os.environ.get('RANK', -1)) != -1  # is this a ddp run?
if ddp:
    init_process_group(backend='nccl')
    ddp_rank, ddp_local_rank = int(os.environ['RANK']), int(os.environ['LOCAL_RANK'])
    ddp_world_size = int(os.environ['WORLD_SIZE'])
    device = f'cuda:{ddp_local_rank}'
    torch.cuda.set_device(device)
    master_process = ddp_rank == 0
    seed_offset = ddp_rank  # each process gets a different seed
    assert gradient_accumulation_steps % ddp_world_size == 0
    gradient_accumulation_steps //= ddp_world_size
else:
    master_process, seed_offset, ddp_world_size, device = True, 0, 1, 'cuda'
torch.manual_seed(1337 + seed_offset)
torch.backends.cuda.matmul.allow_tf32 = True
device_type = 'cuda' if 'cuda' in device else 'cpu'
ptdtype = {'float32': torch.float32, 'bfloat16': torch.bfloat16, 'float16': torch.float16}[dtype]
ctx = nullcontext() if device_type == 'cpu' else torch.amp.autocast(device_type=device_type, dtype=ptdtype)
data = np.random.default_rng(0).integers(0, vocab_size, 20000).astype(np.uint16)  # stands for train.bin
def get_batch():
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy(data[i:i + block_size].astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy(data[i + 1:i + 1 + block_size].astype(np.int64)) for i in ix])
    return x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)
class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab_size, n_embd), nn.Embedding(block_size, n_embd)
        self.ln, self.c_attn = nn.LayerNorm(n_embd, bias=False), nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.c_proj, self.lm_head = nn.Linear(n_embd, n_embd, bias=False), nn.Linear(n_embd, vocab_size, bias=False)
        self.wte.weight = self.lm_head.weight  # weight tying
    def forward(self, idx, targets=None):
        B, T = idx.size()
        x = self.wte(idx) + self.wpe(torch.arange(T, device=idx.device))
        q, k, v = (t.view(B, T, n_head, -1).transpose(1, 2) for t in self.c_attn(self.ln(x)).split(n_embd, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        logits = self.lm_head(x + self.c_proj(y.transpose(1, 2).reshape(B, T, n_embd)))
        return logits, F.cross_entropy(logits.view(-1, vocab_size), targets.view(-1))
def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    ratio = (it - warmup_iters) / (lr_decay_iters - warmup_iters)
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)
raw_model = model = GPT().to(device)
scaler = torch.amp.GradScaler('cuda', enabled=(dtype == 'float16'))
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95), fused=True)
if ddp:
    model = DDP(model, device_ids=[ddp_local_rank])
X, Y = get_batch()
t0 = time.time()
for iter_num in range(max_iters):
    for param_group in optimizer.param_groups:
        param_group['lr'] = get_lr(iter_num)
    if iter_num % eval_interval == 0 and master_process:
        with torch.no_grad(), ctx:
            val = sum(raw_model(*get_batch())[1].item() for _ in range(eval_iters)) / eval_iters
        torch.save({'model': raw_model.state_dict()}, tempfile.mkstemp(suffix='ckpt.pt')[1])
        print(f"step {iter_num}: val loss {val:.4f}")
    for micro_step in range(gradient_accumulation_steps):
        if ddp:  # sync the gradients at the last micro step only
            model.require_backward_grad_sync = (micro_step == gradient_accumulation_steps - 1)
        with ctx:
            logits, loss = model(X, Y)
            loss = loss / gradient_accumulation_steps
        X, Y = get_batch()
        scaler.scale(loss).backward()
    if grad_clip != 0.0:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
if master_process:
    print(f"{max_iters} iters in {time.time() - t0:.1f}s, last loss {loss.item() * gradient_accumulation_steps:.4f}")
if ddp:
    destroy_process_group()
