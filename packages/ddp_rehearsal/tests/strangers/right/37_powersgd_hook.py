"""Style: PowerSGD gradient compression with warm start and error feedback; after https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html#powersgd-communication-hook"""
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powerSGD
from torch.nn.parallel import DistributedDataParallel as DDP

parser = argparse.ArgumentParser()
parser.add_argument("--rank_r", type=int, default=2, help="rank of the approximation")
parser.add_argument("--start", type=int, default=8, help="plain all-reduce before this iteration")
parser.add_argument("--iters", type=int, default=40)
parser.add_argument("--batch", type=int, default=32, help="global batch")
args = parser.parse_args()

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
device = torch.device("cuda", local_rank)

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(48, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 10)).to(device)
model = DDP(net, device_ids=[local_rank], gradient_as_bucket_view=True)
state = powerSGD.PowerSGDState(process_group=None, matrix_approximation_rank=args.rank_r, start_powerSGD_iter=args.start,
                               min_compression_rate=2, use_error_feedback=True, warm_start=True)
model.register_comm_hook(state, powerSGD.powerSGD_hook)

optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.iters)
criterion = nn.CrossEntropyLoss()

# one common stream of global batches; every rank trains on its slice
stream = torch.Generator().manual_seed(77)
centers = torch.randn(10, 48, generator=stream)
for it in range(args.iters):
    labels = torch.randint(0, 10, (args.batch,), generator=stream)
    inputs = centers[labels] + 0.5 * torch.randn(args.batch, 48, generator=stream)
    x, y = inputs.chunk(world)[rank].to(device), labels.chunk(world)[rank].to(device)
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    scheduler.step()
    if (it + 1) % 10 == 0:
        total = loss.detach() / world
        dist.reduce(total, dst=0)
        if rank == 0:
            print(f"iter {it + 1}: loss {total.item():.4f} lr {scheduler.get_last_lr()[0]:.4f}")
dist.barrier()
dist.destroy_process_group()
