"""Style: GPT speedrun with a sharded Muon optimizer and own data loader; modelled on train_gpt2.py of the public modded-nanogpt repository"""
import os
from dataclasses import dataclass
import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
def zeropower_via_newtonschulz5(G, steps=5, eps=1e-7):
    a, b, c = (3.4445, -4.7750, 2.0315)
    X = G.bfloat16() / (G.bfloat16().norm() + eps)
    X = X.T if G.size(0) > G.size(1) else X
    for _ in range(steps):
        A = X @ X.T
        X = a * X + (b * A + c * A @ A) @ X
    return X.T if G.size(0) > G.size(1) else X
class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95):
        super().__init__(params, dict(lr=lr, momentum=momentum))
    @torch.no_grad()
    def step(self):
        rank, world_size = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
        for group in self.param_groups:
            flat = torch.zeros(sum(p.numel() for p in group['params']), device='cuda', dtype=torch.bfloat16)
            pos = 0
            for i, p in enumerate(group['params']):
                if i % world_size == rank:  # this rank makes the update of every world_size-th matrix
                    buf = self.state[p].setdefault('momentum_buffer', torch.zeros_like(p.grad))
                    buf.mul_(group['momentum']).add_(p.grad)
                    g = zeropower_via_newtonschulz5(p.grad.add(buf, alpha=group['momentum']))
                    flat[pos:pos + p.numel()] = (g * max(1, p.size(0) / p.size(1)) ** 0.5).flatten()
                pos += p.numel()
            dist.all_reduce(flat, op=dist.ReduceOp.SUM)  # everyone gets everyone's updates
            pos = 0
            for p in group['params']:
                p.add_(flat[pos:pos + p.numel()].view_as(p).type_as(p), alpha=-group['lr'])
                pos += p.numel()
@dataclass
class Hyperparameters:
    batch_size: int = 8; seq_len: int = 32
    num_iterations: int = 30; warmdown_iters: int = 10
class DistributedDataLoader:
    def __init__(self, B, T, rank, world):
        self.tokens = np.random.default_rng(1).integers(0, 128, 50_000).astype(np.uint16)
        self.B, self.T, self.rank, self.world, self.pos = B, T, rank, world, rank * B * T
    def next_batch(self):
        buf = torch.from_numpy(self.tokens[self.pos:self.pos + self.B * self.T + 1].astype(np.int64)).pin_memory()
        self.pos += self.B * self.T * self.world
        if self.pos + self.B * self.T * self.world >= len(self.tokens):
            self.pos = self.rank * self.B * self.T
        return (buf[:-1].view(self.B, self.T).cuda(non_blocking=True),
                buf[1:].view(self.B, self.T).cuda(non_blocking=True))
class Net(nn.Module):
    def __init__(self, d=32, vocab=128):
        super().__init__()
        self.wte = nn.Embedding(vocab, d)
        self.h = nn.ModuleList([nn.ModuleList([nn.Linear(d, 4 * d, bias=False), nn.Linear(4 * d, d, bias=False)]) for _ in range(4)])
        self.lm_head = nn.Linear(d, vocab, bias=False)
        self.lm_head.weight.data.zero_()
    def forward(self, idx, target):
        x = self.wte(idx)
        for fc, proj in self.h:
            x = x + proj(F.relu(fc(F.rms_norm(x, (x.size(-1),)))).square())
        logits = 30 * torch.tanh(self.lm_head(F.rms_norm(x, (x.size(-1),))) / 30)
        return F.cross_entropy(logits.float().view(-1, logits.size(-1)), target.view(-1))
args = Hyperparameters()
device = torch.device('cuda', int(os.environ['LOCAL_RANK']))
torch.cuda.set_device(device)
dist.init_process_group(backend='nccl', device_id=device)
model = DDP(Net().cuda(), device_ids=[device.index], gradient_as_bucket_view=True)
loader = DistributedDataLoader(args.batch_size, args.seq_len, dist.get_rank(), dist.get_world_size())
raw = model.module
optimizers = [torch.optim.Adam([*raw.wte.parameters(), *raw.lm_head.parameters()], lr=3e-3, betas=(0.9, 0.95), fused=True),
              Muon(list(raw.h.parameters()), lr=0.02)]
decay = lambda it: min(1.0, (args.num_iterations - it) / args.warmdown_iters)
schedulers = [torch.optim.lr_scheduler.LambdaLR(opt, decay) for opt in optimizers]
for step in range(args.num_iterations):
    with torch.autocast('cuda', dtype=torch.bfloat16):
        loss = model(*loader.next_batch())
    loss.backward()
    for opt, sched in zip(optimizers, schedulers):
        opt.step()
        sched.step()
    model.zero_grad(set_to_none=True)
    if step % 10 == 0:
        dist.all_reduce(loss_avg := loss.detach().clone(), op=dist.ReduceOp.AVG)
        if dist.get_rank() == 0:
            print(f"step:{step + 1}/{args.num_iterations} train_loss:{loss_avg.item():.4f}")
dist.destroy_process_group()
