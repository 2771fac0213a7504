"""ImageNet-example style: SyncBN, a schedule per epoch, exact validation on uneven shares, best model kept by rank 0."""
import json
import os
import tempfile
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


def fake_images(n, seed):
    x = torch.rand(n, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, x.mean((2, 3)).argmax(1))


class AverageMeter:
    def __init__(self):
        self.sum = self.count = 0.0

    def update(self, value, n):
        self.sum += value * n
        self.count += n


@torch.no_grad()
def validate(net, loader, device):
    """net is the bare module: shares are uneven, so ranks may run different numbers of batches"""
    net.eval()
    totals = torch.zeros(3, dtype=torch.float64, device=device)
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        out = net(x)
        totals[0] += nn.functional.cross_entropy(out, y, reduction="sum")
        totals[1] += (out.argmax(1) == y).sum()
        totals[2] += len(y)
    dist.all_reduce(totals)
    return (totals[0] / totals[2]).item(), (totals[1] / totals[2]).item()


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    train_set, val_set = fake_images(96, 0), fake_images(37, 1)
    sampler = DistributedSampler(train_set, shuffle=True, drop_last=True)
    train_loader = DataLoader(train_set, batch_size=8, sampler=sampler, drop_last=True)
    val_loader = DataLoader(Subset(val_set, range(rank, len(val_set), world)), batch_size=6)

    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                        nn.Flatten(), nn.Linear(8, 3)).to(device)
    model = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(net), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), 0.1 * 8 * world / 256, momentum=0.9, nesterov=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.3)
    out_dir = tempfile.mkdtemp() if rank == 0 else None
    best = 0.0
    for epoch in range(5):
        sampler.set_epoch(epoch)
        model.train()
        losses = AverageMeter()
        for x, y in train_loader:
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.update(loss.item(), len(y))
        scheduler.step()
        val_loss, acc = validate(model.module, val_loader, device)
        if rank == 0:
            with open(os.path.join(out_dir, "log.jsonl"), "a") as f:
                f.write(json.dumps({"epoch": epoch, "val_loss": val_loss, "acc": acc, "rank0_loss": losses.sum / losses.count}) + "\n")
            if acc >= best:
                torch.save({"epoch": epoch, "model": model.module.state_dict()}, os.path.join(out_dir, "best.pt"))
        best = max(best, acc)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
