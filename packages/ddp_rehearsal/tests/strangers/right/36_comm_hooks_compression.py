"""Style: DDP communication hooks: a hand-written one with a future chain, inside the bf16 wrapper; after https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html"""
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class HookState:
    process_group: dist.ProcessGroup
    buckets: int = 0
    elements: int = 0


def counted_mean_hook(state: HookState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """All-reduce mean of a bucket, like DDP's own, that counts what it sends."""
    state.buckets += 1
    state.elements += bucket.buffer().numel()
    tensor = bucket.buffer().div_(dist.get_world_size(state.process_group))
    fut = dist.all_reduce(tensor, group=state.process_group, async_op=True).get_future()

    def unpack(fut):
        return fut.value()[0]

    return fut.then(unpack)


def make_net():
    return nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 4))


def run(hook_name, local_rank):
    torch.manual_seed(5)
    model = DDP(make_net().cuda(), device_ids=[local_rank], bucket_cap_mb=0.03, gradient_as_bucket_view=True)
    state = HookState(dist.group.WORLD)
    if hook_name == "counted+bf16":
        model.register_comm_hook(state, default_hooks.bf16_compress_wrapper(counted_mean_hook))
    elif hook_name == "fp16":
        model.register_comm_hook(dist.group.WORLD, default_hooks.fp16_compress_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    gen = torch.Generator(device="cuda").manual_seed(900 + dist.get_rank())
    for _ in range(15):
        x = torch.randn(16, 32, device="cuda", generator=gen)
        target = x[:, :4].argmax(1)
        loss = nn.functional.cross_entropy(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    if dist.get_rank() == 0:
        print(f"{hook_name:>13}: loss {mean.item():.4f}, {state.buckets} buckets, {state.elements} elements by own hook")


if __name__ == "__main__":
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    for name in ("counted+bf16", "fp16", "none"):
        run(name, local_rank)
    dist.destroy_process_group()
