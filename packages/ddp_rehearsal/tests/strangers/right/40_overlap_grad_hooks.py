"""Style: own data parallelism: post-accumulate-grad hooks start asynchronous all_reduces during backward; after https://docs.pytorch.org/tutorials/intermediate/optimizer_step_in_backward_tutorial.html"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn


class SimpleDataParallel:
    """Keeps replicas equal: broadcast at the start, mean gradients at each step."""

    def __init__(self, module):
        self.module = module
        self.world_size = dist.get_world_size()
        self.pending = []
        self.enabled = True
        with torch.no_grad():
            for tensor in module.state_dict().values():
                dist.broadcast(tensor, src=0)
        for p in module.parameters():
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(self._launch)

    def _launch(self, param):
        if self.enabled:
            self.pending.append(dist.all_reduce(param.grad, op=dist.ReduceOp.AVG, async_op=True))

    def finish_reduction(self):
        for work in self.pending:
            work.wait()
        self.pending.clear()


class ResMLP(nn.Module):
    def __init__(self, dim=24, depth=3):
        super().__init__()
        self.stem = nn.Linear(16, dim)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU()) for _ in range(depth))
        self.head = nn.Linear(dim, 1)

    def forward(self, x):
        x = self.stem(x)
        for b in self.blocks:
            x = x + b(x)
        return self.head(x).squeeze(-1)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local_rank))
    rank, world = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(rank)  # weights differ here, the broadcast makes them equal
    model = ResMLP().cuda()
    ddp = SimpleDataParallel(model)
    optimizer = torch.optim.RAdam(model.parameters(), lr=2e-3)
    x_all = torch.randn(512, 16, generator=torch.Generator().manual_seed(0))
    y_all = x_all.pow(2).sum(1).sqrt()
    shard = torch.arange(rank, len(x_all), world)  # every world-th sample
    batch, micro = 32 // world, 2
    shuffle = torch.Generator().manual_seed(rank)

    step = 0
    for epoch in range(2):
        order = shard[torch.randperm(len(shard), generator=shuffle)]
        for idx in order.split(batch):
            optimizer.zero_grad(set_to_none=True)
            parts = idx.chunk(micro)
            for i, part in enumerate(parts):
                ddp.enabled = i == len(parts) - 1  # communicate with the last micro-batch only
                loss = nn.functional.mse_loss(model(x_all[part].cuda()), y_all[part].cuda()) / len(parts)
                loss.backward()
            ddp.finish_reduction()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
        if rank == 0:
            print(f"epoch {epoch} step {step} loss {loss.item() * len(parts):.4f}")
    torch.cuda.synchronize()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
