"""Style: nccl for CUDA and gloo for CPU in one process group, CPU metrics reduced, object collectives, one log file per rank; after https://docs.pytorch.org/docs/stable/distributed.html"""
import datetime
import logging
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class MultiTask(nn.Module):
    """Shared trunk, two heads, learned log variances that weigh the losses."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(10, 32), nn.ReLU())
        self.cls_head, self.reg_head = nn.Linear(32, 3), nn.Linear(32, 1)
        self.log_vars = nn.Parameter(torch.zeros(2))

    def forward(self, x, y_cls, y_reg):
        h = self.trunk(x)
        logits = self.cls_head(h)
        losses = torch.stack([nn.functional.cross_entropy(logits, y_cls),
                              nn.functional.mse_loss(self.reg_head(h).squeeze(1), y_reg)])
        return (losses * torch.exp(-self.log_vars) + self.log_vars).sum(), losses.detach(), logits.detach()


def get_logger(rank):
    folder = [tempfile.mkdtemp(prefix="logs_") if rank == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    logger = logging.getLogger(f"train.rank{rank}")
    logger.setLevel(logging.INFO)
    logger.addHandler(logging.FileHandler(os.path.join(folder[0], f"rank_{rank}.log")))  # a name per rank
    if rank == 0:
        logger.addHandler(logging.StreamHandler())
    return logger


def main():
    rank, world, local_rank = (int(os.environ[k]) for k in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    torch.cuda.set_device(local_rank)
    dist.init_process_group(backend="cuda:nccl,cpu:gloo", timeout=datetime.timedelta(minutes=10))
    control = dist.new_group(backend="gloo")  # a CPU-only group for bookkeeping
    logger = get_logger(rank)
    config = [{"lr": 2e-3, "steps": 36, "seed": int(time.time()) % 1000} if rank == 0 else None]
    dist.broadcast_object_list(config, src=0)  # rank 0 decides, all follow
    cfg = config[0]
    torch.manual_seed(cfg["seed"] + rank)

    model = DDP(MultiTask().cuda(), device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg["lr"])
    scheduler = torch.optim.lr_scheduler.SequentialLR(
        optimizer, [torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=6),
                    torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=cfg["steps"] - 6)], milestones=[6])
    confusion = torch.zeros(3, 3, dtype=torch.long)  # on the CPU
    for step in range(cfg["steps"]):
        began = time.perf_counter()
        x = torch.randn(16, 10)
        y_cls, y_reg = x[:, :3].argmax(1), x[:, 3:].sum(1)
        loss, parts, logits = model(x.cuda(), y_cls.cuda(), y_reg.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        confusion += torch.bincount(3 * y_cls + logits.argmax(1).cpu(), minlength=9).view(3, 3)
        if (step + 1) % 12 == 0:
            dist.all_reduce(parts, op=dist.ReduceOp.AVG)  # CUDA tensor: nccl
            total = confusion.clone()
            dist.all_reduce(total)  # CPU tensor: gloo
            times = [None] * world
            dist.all_gather_object(times, {"rank": rank, "ms": 1e3 * (time.perf_counter() - began)}, group=control)
            slowest = max(times, key=lambda t: t["ms"])
            accuracy = total.diagonal().sum().item() / total.sum().item()
            logger.info("step %d cls %.4f reg %.4f acc %.3f slowest rank %d", step + 1, *parts.tolist(), accuracy, slowest["rank"])
            confusion.zero_()
    dist.monitored_barrier(group=control)
    for handler in logger.handlers:
        handler.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
