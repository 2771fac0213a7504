"""After https://github.com/LAMDA-CL/PyCIL/issues/60: forward makes a tensor with .cuda(), which lands on GPU 0 in every process, since the current device is never set, and meets weights on GPU 1 there."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class GrowingClassifier(nn.Module):
    """The old classes' weights are padded with zeros for the features that came later."""

    def __init__(self, old_dim=8, new_dim=4, old_classes=3, new_classes=2):
        super().__init__()
        self.features = nn.Linear(10, old_dim + new_dim)
        self.old_fc = nn.Linear(old_dim, old_classes, bias=False)
        self.new_fc = nn.Linear(old_dim + new_dim, new_classes, bias=False)
        self.pad_shape = (old_classes, new_dim)

    def forward(self, x):
        feature = torch.relu(self.features(x))
        old_weight = torch.cat([self.old_fc.weight, torch.zeros(self.pad_shape).cuda()], dim=1)
        weight = torch.cat([old_weight, self.new_fc.weight], dim=0)
        return feature @ weight.t()


def increments(n=120):
    g = torch.Generator().manual_seed(60)
    x = torch.randn(n, 10, generator=g)
    return TensorDataset(x, x[:, :5].argmax(dim=1))


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device(f"cuda:{local_rank}")
    dist.init_process_group("nccl")
    torch.manual_seed(1993)

    model = DDP(GrowingClassifier().to(device), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=2e-4)
    data = increments()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=15, sampler=sampler)

    for epoch in range(4):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        mean = loss.detach()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        if dist.get_rank() == 0:
            print("epoch", epoch, "loss", round(mean.item(), 4), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
