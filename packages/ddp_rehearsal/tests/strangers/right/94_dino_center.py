"""Self-distillation in the manner of DINO: EMA teacher, all-reduced centre, cancelled gradients of the last layer at first."""
import copy
import math
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Head(nn.Module):
    def __init__(self, dim=16, out=12):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(20, 32), nn.GELU(), nn.Linear(32, dim))
        self.last_layer = nn.Linear(dim, out, bias=False)

    def forward(self, x):
        return self.last_layer(F.normalize(self.backbone(x), dim=-1))


class DINOLoss(nn.Module):
    def __init__(self, out=12, momentum=0.9):
        super().__init__()
        self.register_buffer("center", torch.zeros(1, out))
        self.momentum = momentum

    def forward(self, student, teacher):
        s = [F.log_softmax(o / 0.1, -1) for o in student.chunk(2)]
        t = [F.softmax((o - self.center) / 0.04, -1).detach() for o in teacher.chunk(2)]
        loss = -((t[0] * s[1]).sum(-1).mean() + (t[1] * s[0]).sum(-1).mean()) / 2
        self.update_center(teacher)
        return loss

    @torch.no_grad()
    def update_center(self, teacher):
        batch = teacher.sum(0, keepdim=True)
        dist.all_reduce(batch)
        batch = batch / (len(teacher) * dist.get_world_size())
        self.center = self.center * self.momentum + batch * (1 - self.momentum)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    data = TensorDataset(torch.randn(96, 20, generator=torch.Generator().manual_seed(0)))
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler, drop_last=True)
    student = DDP(Head().to(device), device_ids=[local_rank])
    teacher = copy.deepcopy(student.module).requires_grad_(False)      # copied after DDP made all ranks alike
    criterion = DINOLoss().to(device)
    opt = torch.optim.AdamW(student.parameters(), lr=1e-3)
    epochs, it = 5, 0
    total = epochs * len(loader)
    torch.manual_seed(5 + dist.get_rank())
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for (x,) in loader:
            for group in opt.param_groups:
                group["lr"] = 1e-3 * 0.5 * (1 + math.cos(math.pi * it / total))
            views = torch.cat([x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x)]).to(device)
            with torch.no_grad():
                target = teacher(views)
            loss = criterion(student(views), target)
            opt.zero_grad()
            loss.backward()
            if epoch < 1:
                for name, p in student.named_parameters():
                    if "last_layer" in name:
                        p.grad = None
            opt.step()
            m = 1 - 0.004 * (math.cos(math.pi * it / total) + 1) / 2
            with torch.no_grad():
                for q, k in zip(student.module.parameters(), teacher.parameters()):
                    k.mul_(m).add_(q, alpha=1 - m)
            it += 1
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
