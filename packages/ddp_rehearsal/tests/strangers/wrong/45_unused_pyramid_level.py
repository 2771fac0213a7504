"""After https://github.com/pytorch/pytorch/issues/22049: the pyramid makes five levels but only four enter the loss, so the fifth layer's parameters get no gradient and DDP fails in the next iteration."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Pyramid(nn.Module):
    def __init__(self, channels=6, levels=5):
        super().__init__()
        self.stem = nn.Conv2d(1, channels, 3, padding=1)
        self.lateral = nn.ModuleList(nn.Conv2d(channels, channels, 1) for _ in range(levels))

    def forward(self, x):
        x = torch.relu(self.stem(x))
        maps = []
        for layer in self.lateral:
            maps.append(layer(x))
            x = nn.functional.avg_pool2d(x, 2, ceil_mode=True)
        return maps


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.fpn = Pyramid()
        self.score = nn.Linear(6 * 4, 3)

    def forward(self, image):
        p2, p3, p4, p5, _ = self.fpn(image)
        pooled = [p.mean(dim=(2, 3)) for p in (p2, p3, p4, p5)]
        return self.score(torch.cat(pooled, dim=1))


def run(local_rank, epochs=4):
    device = torch.device("cuda", local_rank)
    torch.manual_seed(0)
    detector = DistributedDataParallel(Detector().to(device), device_ids=[local_rank])
    optimizer = torch.optim.SGD(detector.parameters(), lr=0.02, momentum=0.9)
    g = torch.Generator().manual_seed(1)
    data = TensorDataset(torch.randn(80, 1, 16, 16, generator=g), torch.randint(0, 3, (80,), generator=g))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for image, label in loader:
            loss = nn.functional.cross_entropy(detector(image.to(device)), label.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        mean = loss.detach()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {mean.item():.4f}")


if __name__ == "__main__":
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl")
    run(gpu)
    dist.destroy_process_group()
