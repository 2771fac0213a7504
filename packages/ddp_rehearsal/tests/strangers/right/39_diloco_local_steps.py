"""Style: DiLoCo-like training without DDP: H local AdamW steps, outer Nesterov on averaged pseudo-gradients; after https://arxiv.org/abs/2311.08105"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

OUTER_ROUNDS, INNER_STEPS = 5, 8


def get_shard_batches(rank, batch=16):
    """An endless stream of this worker's own (non-iid) data."""
    g = torch.Generator().manual_seed(10 + rank)
    while True:
        x = torch.randn(batch, 12, generator=g) + 0.2 * rank
        yield x, (x[:, :6].sum(1) > x[:, 6:].sum(1)).long()


@torch.no_grad()
def broadcast_model(model, src=0):
    for t in list(model.parameters()) + list(model.buffers()):
        dist.broadcast(t, src=src)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = nn.Sequential(nn.Linear(12, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 2)).cuda()
    broadcast_model(model)  # all workers leave from the same point

    inner = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    # The outer optimizer works on a copy that stays equal on all workers.
    outer_params = [p.detach().clone().requires_grad_(True) for p in model.parameters()]
    outer = torch.optim.SGD(outer_params, lr=0.7, momentum=0.9, nesterov=True)
    data = get_shard_batches(rank)

    for rnd in range(OUTER_ROUNDS):
        local_loss = 0.0
        for _ in range(INNER_STEPS):  # no communication in here
            x, y = next(data)
            loss = F.cross_entropy(model(x.cuda(non_blocking=True)), y.cuda(non_blocking=True))
            inner.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            inner.step()
            local_loss += loss.item()

        with torch.no_grad():
            for old, new in zip(outer_params, model.parameters()):
                old.grad = old - new  # pseudo-gradient
                dist.all_reduce(old.grad, op=dist.ReduceOp.AVG)
        outer.step()
        with torch.no_grad():
            for old, new in zip(outer_params, model.parameters()):
                new.copy_(old)

        report = torch.tensor([local_loss / INNER_STEPS], device="cuda")
        gathered = [torch.zeros_like(report) for _ in range(world)]
        dist.all_gather(gathered, report)
        if rank == 0:
            print(f"round {rnd}: loss per worker " + ", ".join(f"{g.item():.4f}" for g in gathered))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
