"""fp16 with GradScaler, compiled network in DDP, clipping after unscaling, no schedule step where the scaler skipped one."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class ResNetish(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.a, self.b = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.GroupNorm(2, width)
        self.fc = nn.Linear(width, 3)

    def forward(self, x):
        h = torch.relu(self.stem(x))
        h = torch.relu(self.norm(h + self.b(torch.relu(self.a(h)))))
        return self.fc(h.mean((2, 3)))


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    x = torch.rand(96, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    label = torch.stack([x[:, 0, :2].mean((1, 2)), x[:, 0, 2:4].mean((1, 2)), x[:, 0, 4:].mean((1, 2))], 1).argmax(1)
    data = TensorDataset(x, label)
    sampler = DistributedSampler(data, shuffle=True, drop_last=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler, drop_last=True, pin_memory=True)
    net = torch.compile(ResNetish().to(device), backend="eager")
    model = DDP(net, device_ids=[local_rank])
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=5 * len(loader))
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0 ** 12)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            xb, yb = xb.to(device, non_blocking=True), yb.to(device, non_blocking=True)
            with torch.amp.autocast("cuda", dtype=torch.float16):
                loss = nn.functional.cross_entropy(model(xb), yb)
            opt.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()       # averaged here, so every rank finds the same infs
            scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scale = scaler.get_scale()
            scaler.step(opt)
            scaler.update()
            if scaler.get_scale() >= scale:
                sched.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.4f} scale {scaler.get_scale():.0f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
