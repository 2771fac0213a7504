"""SAM whose ascent uses the rank's own gradient (no_sync), descent with averaged ones; Lookahead around the base optimizer."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class SAM:
    def __init__(self, params, base, rho=0.05):
        self.params, self.base, self.rho = list(params), base, rho
        self.saved = None

    @torch.no_grad()
    def ascend(self):
        norm = torch.stack([p.grad.norm() for p in self.params]).norm() + 1e-12
        self.saved = [p.clone() for p in self.params]
        for p in self.params:
            p.add_(p.grad, alpha=(self.rho / norm).item())
            p.grad = None

    @torch.no_grad()
    def descend(self):
        for p, old in zip(self.params, self.saved):
            p.copy_(old)                     # back to exactly the weights all ranks share
        self.base.step()
        self.base.zero_grad()


class Lookahead:
    def __init__(self, base, k=5, alpha=0.5):
        self.base, self.k, self.alpha, self.n = base, k, alpha, 0
        self.slow = [p.detach().clone() for g in base.param_groups for p in g["params"]]

    def zero_grad(self):
        self.base.zero_grad()

    @torch.no_grad()
    def step(self):
        self.base.step()
        self.n += 1
        if self.n % self.k == 0:
            fast = [p for g in self.base.param_groups for p in g["params"]]
            for s, f in zip(self.slow, fast):
                s.lerp_(f, self.alpha)
                f.copy_(s)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    x = torch.randn(96, 10, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(x, x[:, :3].argmax(1))
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3)).to(device), device_ids=[local_rank])
    base = Lookahead(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    sam = SAM(model.parameters(), base)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            xb, yb = xb.to(device), yb.to(device)
            with model.no_sync():
                nn.functional.cross_entropy(model(xb), yb).backward()
            sam.ascend()
            loss = nn.functional.cross_entropy(model(xb), yb)
            loss.backward()
            sam.descend()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
