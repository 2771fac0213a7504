"""Style: knowledge distillation, frozen teacher, fp16 AMP with unscale before clipping, OneCycleLR; after https://docs.pytorch.org/tutorials/beginner/knowledge_distillation_tutorial.html and the AMP examples note"""
import os
import random

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.amp import GradScaler, autocast
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)

def mlp(width, p=0.0):
    return nn.Sequential(nn.Linear(20, width), nn.ReLU(), nn.Dropout(p), nn.Linear(width, width), nn.ReLU(),
                         nn.Linear(width, 5))

def kd_loss(student_logits, teacher_logits, labels, T=2.0, alpha=0.75):
    soft = F.kl_div(F.log_softmax(student_logits / T, dim=1), F.softmax(teacher_logits / T, dim=1),
                    reduction="batchmean") * T * T
    return alpha * soft + (1 - alpha) * F.cross_entropy(student_logits, labels)

@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    correct = torch.zeros((), dtype=torch.long, device="cuda")
    seen = torch.zeros((), dtype=torch.long, device="cuda")
    for x, y in loader:
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        correct += (model(x).argmax(1) == y).sum()
        seen += y.numel()
    dist.all_reduce(correct)
    dist.all_reduce(seen)
    model.train()
    return correct.item() / seen.item(), seen.item()

def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")

    set_seed(1)  # teacher and data are made alike in every process
    teacher = mlp(64, p=0.2).cuda().eval()
    for p in teacher.parameters():
        p.requires_grad_(False)
    x = torch.randn(1003, 20)
    with torch.no_grad():
        y = teacher(x.cuda()).argmax(1).cpu()
    data = TensorDataset(x, y)
    train_set, val_set = Subset(data, range(800)), Subset(data, range(800 + rank, 1003, world))

    set_seed(100 + rank)  # dropout masks differ from rank to rank
    student = DDP(mlp(16, p=0.1).cuda(), device_ids=[local_rank])
    sampler = DistributedSampler(train_set, num_replicas=world, rank=rank, shuffle=True, seed=0)
    loader = DataLoader(train_set, batch_size=16, sampler=sampler, pin_memory=True, drop_last=True)
    val_loader = DataLoader(val_set, batch_size=32, pin_memory=True)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    epochs = 2
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=epochs * len(loader))
    scaler = GradScaler("cuda", init_scale=2.0 ** 12)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            xb, yb = xb.cuda(non_blocking=True), yb.cuda(non_blocking=True)
            optimizer.zero_grad(set_to_none=True)
            with autocast("cuda", dtype=torch.float16):
                with torch.no_grad():
                    teacher_logits = teacher(xb)
                loss = kd_loss(student(xb), teacher_logits, yb)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(student.parameters(), 5.0)
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
        acc, n = evaluate(student, val_loader)
        if rank == 0:
            print(f"epoch {epoch}: val accuracy {acc:.4f} on {n} samples, scale {scaler.get_scale()}")
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
