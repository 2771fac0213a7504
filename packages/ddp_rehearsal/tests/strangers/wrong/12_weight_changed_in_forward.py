"""After https://github.com/iCog-Labs-Dev/PC-Transformers/pull/135: the layer changes its lateral weights by itself in forward, out of the rank's own batch, which DDP does not see, so the ranks' weights run apart."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class PredictiveLayer(nn.Module):
    """A linear layer with lateral weights that learn by a local rule."""

    def __init__(self, width, rate=0.01):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.lateral = nn.Parameter(torch.eye(width), requires_grad=False)
        self.rate = rate

    def forward(self, x):
        target = self.linear(x)
        y = torch.tanh(target @ self.lateral.clone())
        if self.training:
            error = (target - y).detach()
            local_rule = y.detach().t() @ error / len(x)
            self.lateral.data = self.lateral.data + self.rate * local_rule
        return y


class Tokens(Dataset):
    def __init__(self, size=128, width=12):
        g = torch.Generator().manual_seed(31)
        self.x = torch.randn(size, width, generator=g)
        self.y = torch.sin(self.x).sum(dim=1, keepdim=True)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def train(local_rank):
    torch.manual_seed(17)
    model = nn.Sequential(PredictiveLayer(12), PredictiveLayer(12), nn.Linear(12, 1)).to(local_rank)
    model = DDP(model, device_ids=[local_rank])
    opt = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05)
    dataset = Tokens()
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        energy = torch.zeros((), device=local_rank)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x.to(local_rank)), y.to(local_rank))
            opt.zero_grad()
            loss.backward()
            opt.step()
            energy += loss.detach()
        dist.all_reduce(energy, op=dist.ReduceOp.AVG)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: energy {energy.item() / len(loader):.4f}", flush=True)


if __name__ == "__main__":
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl")
    train(gpu)
    dist.destroy_process_group()
