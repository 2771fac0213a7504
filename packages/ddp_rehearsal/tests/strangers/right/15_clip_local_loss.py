"""Style: CLIP training with local loss and gather with gradient, logit scale, warm-up cosine; modelled on https://github.com/mlfoundations/open_clip"""
import logging
import math
import os

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = x.new_empty((dist.get_world_size() * x.size(0), *x.shape[1:]))
        dist.all_gather_into_tensor(out, x.contiguous())
        return out

    @staticmethod
    def backward(ctx, grad):
        mine = grad.new_empty((grad.size(0) // dist.get_world_size(), *grad.shape[1:]))
        dist.reduce_scatter_tensor(mine, grad.contiguous())
        return mine

class ClipLoss(nn.Module):
    def __init__(self, rank):
        super().__init__()
        self.rank = rank

    def forward(self, image_features, text_features, logit_scale):
        all_image, all_text = _AllGather.apply(image_features), _AllGather.apply(text_features)
        logits_per_image = logit_scale * image_features @ all_text.T
        logits_per_text = logit_scale * text_features @ all_image.T
        n = logits_per_image.shape[0]
        labels = torch.arange(n, device=logits_per_image.device, dtype=torch.long) + n * self.rank
        return (F.cross_entropy(logits_per_image, labels) + F.cross_entropy(logits_per_text, labels)) / 2

class CLIP(nn.Module):
    def __init__(self, embed_dim=16, vocab=50):
        super().__init__()
        self.visual = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, embed_dim))
        self.token_embedding = nn.Embedding(vocab, 32)
        self.text_projection = nn.Parameter(torch.randn(32, embed_dim) * 32 ** -0.5)
        self.logit_scale = nn.Parameter(torch.ones([]) * np.log(1 / 0.07))

    def forward(self, image, text):
        text_features = self.token_embedding(text).mean(1) @ self.text_projection
        return F.normalize(self.visual(image), dim=-1), F.normalize(text_features, dim=-1), self.logit_scale.exp()

def random_seed(seed=42, rank=0):
    torch.manual_seed(seed + rank)
    np.random.seed(seed + rank)

def main(steps=32, warmup=8, base_lr=5e-4):
    local_rank, rank = int(os.environ["LOCAL_RANK"]), int(os.environ["RANK"])
    torch.cuda.set_device(device := torch.device("cuda", local_rank))
    dist.init_process_group("nccl")
    logging.basicConfig(level=logging.INFO if rank == 0 else logging.WARN)
    random_seed(42, 0)  # the same model everywhere
    model = CLIP().to(device)
    random_seed(42, rank)  # other batches on every rank
    model = nn.parallel.DistributedDataParallel(model, device_ids=[device])
    exclude = lambda n, p: p.ndim < 2 or "ln" in n or "bias" in n or "logit_scale" in n
    named = list(model.named_parameters())
    optimizer = torch.optim.AdamW([{"params": [p for n, p in named if exclude(n, p)], "weight_decay": 0.},
                                   {"params": [p for n, p in named if not exclude(n, p)], "weight_decay": 0.2}],
                                  lr=base_lr, betas=(0.9, 0.98), eps=1e-6)
    loss_fn = ClipLoss(rank)
    for step in range(steps):
        lr = base_lr * (step + 1) / warmup if step < warmup else \
            0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) * base_lr
        for group in optimizer.param_groups:
            group["lr"] = lr
        images, texts = torch.rand(8, 3, 8, 8).to(device), torch.randint(0, 50, (8, 6)).to(device)
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            image_features, text_features, logit_scale = model(images, texts)
            loss = loss_fn(image_features, text_features, logit_scale)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, norm_type=2.0)
        optimizer.step()
        with torch.no_grad():  # note: we clamp to 4.6052 = ln(100), as in the original paper
            model.module.logit_scale.clamp_(0, math.log(100))
        if step % 8 == 0:
            logging.info(f"step {step} loss {loss.item():.4f} lr {lr:.2e} scale {logit_scale.item():.2f}")
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
