"""No DDP: a hook per parameter starts an asynchronous all-reduce during backward, the step waits for them; LARS by hand."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Overlapped:
    def __init__(self, model):
        self.model, self.world, self.pending = model, dist.get_world_size(), []
        works = [dist.broadcast(t, src=0, async_op=True) for t in model.state_dict().values()]
        for w in works:
            w.wait()
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(self._start)

    def _start(self, p):
        p.grad.div_(self.world)
        self.pending.append(dist.all_reduce(p.grad, async_op=True))

    def wait(self):
        for work in self.pending:
            work.wait()
        self.pending.clear()


class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=1e-4, trust=0.1):
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust=trust))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                g = p.grad
                if p.ndim > 1:
                    g = g.add(p, alpha=group["weight_decay"])
                    pn, gn = p.norm(), g.norm()
                    g = g * torch.where((pn > 0) & (gn > 0), group["trust"] * pn / (gn + 1e-9), torch.ones_like(pn))
                buf = self.state[p].setdefault("mu", torch.zeros_like(p))
                buf.mul_(group["momentum"]).add_(g)
                p.add_(buf, alpha=-group["lr"])


class Slice(Dataset):
    """this rank's contiguous piece of an order that all ranks draw alike, anew in each epoch"""

    def __init__(self, x, y, rank, world):
        self.x, self.y, self.rank, self.world = x, y, rank, world
        self.reshuffle(0)

    def reshuffle(self, epoch):
        order = torch.randperm(len(self.x), generator=torch.Generator().manual_seed(epoch))
        self.index = order.view(self.world, -1)[self.rank].tolist()

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        return self.x[self.index[i]], self.y[self.index[i]]


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    x = torch.randn(96, 12, generator=torch.Generator().manual_seed(5))
    data = Slice(x, x[:, :4].argmax(1), dist.get_rank(), dist.get_world_size())
    model = nn.Sequential(nn.Linear(12, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 4)).to(device)
    parallel = Overlapped(model)
    opt = LARS(model.parameters(), lr=0.1)
    for epoch in range(5):
        data.reshuffle(epoch)
        for xb, yb in DataLoader(data, batch_size=8):
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(xb.to(device)), yb.to(device))
            loss.backward()
            parallel.wait()
            opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
