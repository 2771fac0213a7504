"""Style: DINO: multi-crop student, EMA teacher, centred loss, per-step schedules; modelled on https://github.com/facebookresearch/dino"""
import json, math, os, sys, tempfile
import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
class Net(nn.Module):
    def __init__(self, out_dim=32):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.last_layer = nn.utils.parametrizations.weight_norm(nn.Linear(16, out_dim, bias=False))
        self.last_layer.parametrizations.weight.original0.data.fill_(1)
        self.last_layer.parametrizations.weight.original0.requires_grad = False
    def forward(self, crops):  # one forward for every resolution, heads on all of them
        crops = crops if isinstance(crops, list) else [crops]
        sizes = sorted({c.shape[-1] for c in crops}, reverse=True)
        feats = torch.cat([self.backbone(torch.cat([c for c in crops if c.shape[-1] == s])) for s in sizes])
        return self.last_layer(F.normalize(self.mlp(feats), dim=-1))
class DINOLoss(nn.Module):
    def __init__(self, out_dim, ncrops, teacher_temp=0.04, student_temp=0.1, center_momentum=0.9):
        super().__init__()
        self.ncrops, self.t, self.s, self.m = ncrops, teacher_temp, student_temp, center_momentum
        self.register_buffer("center", torch.zeros(1, out_dim))
    def forward(self, student_output, teacher_output):
        student_out = (student_output / self.s).chunk(self.ncrops)
        teacher_out = F.softmax((teacher_output - self.center) / self.t, dim=-1).detach().chunk(2)
        terms = [torch.sum(-q * F.log_softmax(v, dim=-1), dim=-1).mean()
                 for iq, q in enumerate(teacher_out) for iv, v in enumerate(student_out) if iv != iq]
        self.update_center(teacher_output)
        return sum(terms) / len(terms)
    @torch.no_grad()
    def update_center(self, teacher_output):
        batch_center = torch.sum(teacher_output, dim=0, keepdim=True)
        dist.all_reduce(batch_center)
        batch_center = batch_center / (len(teacher_output) * dist.get_world_size())
        self.center = self.center * self.m + batch_center * (1 - self.m)
def cosine_scheduler(base, final, epochs, niter, warmup_epochs=0):
    warmup = np.linspace(0, base, warmup_epochs * niter)
    iters = np.arange(epochs * niter - len(warmup))
    return np.concatenate((warmup, final + 0.5 * (base - final) * (1 + np.cos(np.pi * iters / len(iters)))))
def get_params_groups(model):
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    reg, not_reg = [p for n, p in named if p.ndim > 1], [p for n, p in named if p.ndim == 1]
    return [{'params': reg}, {'params': not_reg, 'weight_decay': 0.}]
gpu = int(os.environ['LOCAL_RANK'])
torch.cuda.set_device(gpu)
dist.init_process_group(backend="nccl", init_method="env://")
torch.manual_seed(0)
student, teacher = Net().cuda(), Net().cuda()
student = nn.parallel.DistributedDataParallel(student, device_ids=[gpu])
teacher.load_state_dict(student.module.state_dict())
teacher.requires_grad_(False)
dino_loss = DINOLoss(32, ncrops=4).cuda()
optimizer = torch.optim.AdamW(get_params_groups(student))
fp16_scaler = torch.amp.GradScaler("cuda")
epochs, niter, batch = 3, 10, 8
lr_schedule = cosine_scheduler(1e-3, 1e-5, epochs, niter, warmup_epochs=1)
wd_schedule, momentum_schedule = cosine_scheduler(0.04, 0.4, epochs, niter), cosine_scheduler(0.99, 1, epochs, niter)
gen = torch.Generator(device="cuda").manual_seed(500 + dist.get_rank())  # crops differ from rank to rank
log = tempfile.NamedTemporaryFile("w", suffix="log.txt") if dist.get_rank() == 0 else None
for epoch in range(epochs):
    for it in range(epoch * niter, (epoch + 1) * niter):
        for i, group in enumerate(optimizer.param_groups):
            group["lr"] = lr_schedule[it]
            if i == 0:  # only the first group is regularized
                group["weight_decay"] = wd_schedule[it]
        images = [torch.randn(batch, 3, s, s, device="cuda", generator=gen) for s in (16, 16, 8, 8)]
        with torch.amp.autocast("cuda"):
            teacher_output = teacher(images[:2])
            loss = dino_loss(student(images), teacher_output)
        if not math.isfinite(loss.item()):
            sys.exit(1)
        optimizer.zero_grad()
        fp16_scaler.scale(loss).backward()
        fp16_scaler.unscale_(optimizer)  # unscale the gradients of optimizer's assigned params in-place
        for n, p in student.named_parameters():
            if p.grad is not None:
                p.grad.mul_(torch.clamp(3.0 / (p.grad.norm(2) + 1e-6), max=1.0))
            if epoch < 1 and "last_layer" in n:
                p.grad = None  # the last layer stays frozen in the first epoch
        fp16_scaler.step(optimizer)
        fp16_scaler.update()
        with torch.no_grad():  # EMA update for the teacher
            for param_q, param_k in zip(student.module.parameters(), teacher.parameters()):
                param_k.mul_(momentum_schedule[it]).add_((1 - momentum_schedule[it]) * param_q.detach())
    if log is not None:
        log.write(json.dumps({"epoch": epoch, "train_loss": loss.item()}) + "\n")
dist.destroy_process_group()
