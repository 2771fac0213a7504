"""Style: GPipe-like pipeline by hand: one stage per rank, micro-batches, activations and gradients by send and recv; after https://arxiv.org/abs/1811.06965"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn

WIDTH, MICRO, MB_SIZE, STEPS, CLASSES = 32, 4, 8, 25, 5


class Stage(nn.Module):
    def __init__(self, is_first, is_last):
        super().__init__()
        self.inp = nn.Linear(10, WIDTH) if is_first else nn.Identity()
        self.body = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU())
        self.out = nn.Linear(WIDTH, CLASSES) if is_last else nn.Identity()

    def forward(self, x):
        x = self.inp(x)
        return self.out(x + self.body(x))


def global_batch(gen):
    """First and last stage draw the same batch: one needs the inputs, the other the labels."""
    x = torch.randn(MICRO * MB_SIZE, 10, generator=gen)
    return x.chunk(MICRO), x[:, :CLASSES].argmax(1).chunk(MICRO)


def train_step(stage, rank, world, inputs, labels):
    first, last = rank == 0, rank == world - 1
    received, outputs, total = [], [], 0.0
    # all forwards
    for m in range(MICRO):
        if first:
            x = inputs[m].cuda()
        else:
            x = torch.empty(MB_SIZE, WIDTH, device="cuda")
            dist.recv(x, src=rank - 1)
            x.requires_grad_()
        y = stage(x)
        if last:
            y = nn.functional.cross_entropy(y, labels[m].cuda()) / MICRO
            total += y.item()
        else:
            dist.send(y.detach().contiguous(), dst=rank + 1)
        received.append(x)
        outputs.append(y)
    # all backwards, in reverse order on every rank
    for m in reversed(range(MICRO)):
        if last:
            outputs[m].backward()
        else:
            grad = torch.empty_like(outputs[m])
            dist.recv(grad, src=rank + 1)
            outputs[m].backward(grad)
        if not first:
            dist.send(received[m].grad.contiguous(), dst=rank - 1)
    return total


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local_rank))
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(200 + rank)  # stages are different parts of one model
    stage = Stage(rank == 0, rank == world - 1).cuda()
    optimizer = torch.optim.AdamW(stage.parameters(), lr=3e-3)
    gen = torch.Generator().manual_seed(0)  # the same on all ranks
    for step in range(STEPS):
        inputs, labels = global_batch(gen)
        optimizer.zero_grad()
        loss = torch.tensor([train_step(stage, rank, world, inputs, labels)], device="cuda")
        optimizer.step()
        dist.broadcast(loss, src=world - 1)  # only the last stage knows it
        if rank == 0 and step % 8 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
