"""After https://github.com/Lightricks/LTX-Video-Trainer/issues/67: the scheduler is stepped once per process at every optimizer step but was made for the number of optimizer steps, so with two GPUs the learning rate is zero after half of the training."""
import math
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class PreparedScheduler:
    """Counts samples like a single-process run: world_size inner steps for one outer step."""

    def __init__(self, scheduler, world_size):
        self.scheduler, self.world_size = scheduler, world_size

    def step(self):
        for _ in range(self.world_size):
            self.scheduler.step()


def cosine_with_warmup(optimizer, warmup, total):
    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        progress = min(1.0, (step - warmup) / max(1, total - warmup))
        return 0.5 * (1 + math.cos(math.pi * progress))

    return LambdaLR(optimizer, factor)


def main(epochs=5):
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    world_size = dist.get_world_size()
    torch.manual_seed(5)

    video = torch.randn(128, 15, generator=torch.Generator().manual_seed(4))
    data = TensorDataset(video, video.cumsum(dim=1))
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=16, sampler=sampler)

    net = nn.Sequential(nn.Linear(15, 40), nn.SiLU(), nn.Linear(40, 15)).cuda()
    net = nn.parallel.DistributedDataParallel(net, device_ids=[local_rank])
    optimizer = torch.optim.AdamW(net.parameters(), lr=5e-3)
    total_steps = epochs * len(loader)
    scheduler = PreparedScheduler(cosine_with_warmup(optimizer, 2, total_steps), world_size)

    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.mse_loss(net(x.cuda()), y.cuda())
            loss.backward()
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        mean = loss.detach()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} lr {optimizer.param_groups[0]['lr']:.2e} loss {mean.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
