"""Two pipeline stages by hand: activations go forward and gradients come back with send/recv, four micro-batches a step."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn

MICRO, SIZE, HIDDEN = 4, 4, 16


def batches(steps):
    """both stages walk through the same data in the same order: one needs x, the other y"""
    g = torch.Generator().manual_seed(0)
    w = torch.randn(10, 3, generator=g)
    for _ in range(steps):
        x = torch.randn(MICRO * SIZE, 10, generator=g)
        yield x.chunk(MICRO), (x @ w).argmax(1).chunk(MICRO)


def first_stage(model, opt, xs, device):
    sent = []
    for x in xs:
        h = model(x.to(device))
        dist.send(h.detach().contiguous(), dst=1)
        sent.append(h)
    opt.zero_grad()
    for h in sent:
        grad = torch.empty_like(h)
        dist.recv(grad, src=1)
        h.backward(grad)
    opt.step()


def second_stage(model, opt, ys, device):
    received = []
    for _ in ys:
        h = torch.empty(SIZE, HIDDEN, device=device)
        dist.recv(h, src=0)
        received.append(h.requires_grad_())
    opt.zero_grad()
    total = 0.0
    for h, y in zip(received, ys):
        loss = nn.functional.cross_entropy(model(h), y.to(device)) / MICRO
        loss.backward()
        dist.send(h.grad.contiguous(), dst=0)
        total += loss.item()
    opt.step()
    return total


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    assert dist.get_world_size() == 2, "a pipeline of two stages"
    rank = dist.get_rank()
    if rank == 0:
        stage = nn.Sequential(nn.Linear(10, HIDDEN), nn.ReLU())
    else:
        stage = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 3))
    stage.to(device)
    opt = torch.optim.Adam(stage.parameters(), lr=5e-3)
    for step, (xs, ys) in enumerate(batches(28)):
        if rank == 0:
            first_stage(stage, opt, xs, device)
        else:
            loss = second_stage(stage, opt, ys, device)
            if step % 7 == 0:
                print(f"step {step} loss {loss:.4f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
