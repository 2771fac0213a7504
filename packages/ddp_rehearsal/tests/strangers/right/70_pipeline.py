"""Two pipeline stages with plain send/recv and micro batches (GPipe order).

torchrun --nproc-per-node=2 right_10_pipeline.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn

MICRO, MB, DIM = 4, 8, 32


def batches(steps):
    g = torch.Generator().manual_seed(17)
    w = torch.randn(DIM, 5, generator=g)
    for _ in range(steps):
        x = torch.randn(MICRO * MB, DIM, generator=g)
        yield x, (x @ w).argmax(1)


def main():
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    assert world == 2, "this example has two stages"
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    torch.manual_seed(rank)

    if rank == 0:
        stage = nn.Sequential(nn.Linear(DIM, 64), nn.ReLU())
    else:
        stage = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))
    stage.to(device)
    opt = torch.optim.SGD(stage.parameters(), lr=0.1, momentum=0.9)

    for step, (x, y) in enumerate(batches(20)):
        opt.zero_grad()
        if rank == 0:
            outs = []
            for mb in x.to(device).chunk(MICRO):
                h = stage(mb)
                dist.send(h.detach().contiguous(), dst=1)
                outs.append(h)
            for h in outs:
                grad = torch.empty_like(h)
                dist.recv(grad, src=1)
                h.backward(grad)
        else:
            inputs, total = [], 0.0
            targets = y.to(device).chunk(MICRO)
            for _ in range(MICRO):
                h = torch.empty(MB, 64, device=device)
                dist.recv(h, src=0)
                inputs.append(h.requires_grad_())
            for h, t in zip(inputs, targets):
                loss = nn.functional.cross_entropy(stage(h), t) / MICRO
                loss.backward()
                total += loss.item()
                dist.send(h.grad.contiguous(), dst=0)
            if step % 5 == 0:
                print(f"step {step} loss {total:.4f}", flush=True)
        opt.step()

    torch.save(stage.state_dict(), f"stage{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
