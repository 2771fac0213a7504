"""Style: ZeroRedundancyOptimizer recipe with mp.spawn and consolidated optimizer state; modelled on https://docs.pytorch.org/tutorials/recipes/zero_redundancy_optimizer.html"""
import os
import socket
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP


def print_peak_memory(prefix, device):
    if device == 0:
        print(f"{prefix}: {torch.cuda.max_memory_allocated(device) // 1e6}MB ")


def make_model():
    return nn.Sequential(*[nn.Linear(64, 64) for _ in range(12)])


def example(rank, world_size, port, use_zero, path):
    torch.manual_seed(0)
    os.environ['MASTER_ADDR'] = 'localhost'
    os.environ['MASTER_PORT'] = str(port)
    torch.cuda.set_device(rank)
    # create default process group
    dist.init_process_group("nccl", rank=rank, world_size=world_size)

    # create local model
    model = make_model().to(rank)
    ddp_model = DDP(model, device_ids=[rank])
    print_peak_memory("Max memory allocated after creating DDP", rank)

    # define loss function and optimizer
    loss_fn = nn.MSELoss()
    if use_zero:
        optimizer = ZeroRedundancyOptimizer(ddp_model.parameters(), optimizer_class=torch.optim.Adam, lr=1e-3)
    else:
        optimizer = torch.optim.Adam(ddp_model.parameters(), lr=1e-3)

    g = torch.Generator().manual_seed(rank)
    for it in range(24):
        inputs = torch.randn(20, 64, generator=g).to(rank)
        labels = inputs.flip(1)
        optimizer.zero_grad()
        loss = loss_fn(ddp_model(inputs), labels)
        loss.backward()
        optimizer.step()
        if (it + 1) % 12 == 0:
            if use_zero:
                optimizer.consolidate_state_dict(to=0)  # collective: all ranks send their part to rank 0
            if rank == 0:
                torch.save({"model": model.state_dict(), "optim": optimizer.state_dict(), "it": it + 1}, path)
            dist.barrier()
    print_peak_memory("Max memory allocated after optimizer step()", rank)

    # all replicas must have ended at the same place
    total = sum(p.detach().double().sum() for p in model.parameters())
    lo, hi = total.clone(), total.clone()
    dist.all_reduce(lo, op=dist.ReduceOp.MIN)
    dist.all_reduce(hi, op=dist.ReduceOp.MAX)
    assert torch.equal(lo, hi), "replicas differ"
    if rank == 0:
        print(f"params sum is: {total.item():.6f}, loss {loss.item():.4f}")
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("", 0))
        return s.getsockname()[1]


def main():
    world_size = torch.cuda.device_count()
    with tempfile.TemporaryDirectory() as folder:
        for use_zero in (True, False):
            print(f"=== {'Using' if use_zero else 'Not Using'} ZeroRedundancyOptimizer ===")
            args = (world_size, free_port(), use_zero, os.path.join(folder, "ckpt.pt"))
            mp.spawn(example, args=args, nprocs=world_size, join=True)


if __name__ == "__main__":
    main()
