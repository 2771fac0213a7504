"""After https://github.com/pytorch/pytorch/issues/45326: the frozen feature network of the perceptual loss is wrapped in DDP too, which refuses a module without a parameter that requires a gradient."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class FeatureExtractor(nn.Module):
    """A fixed network whose feature maps are compared."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1))
        for p in self.parameters():
            p.requires_grad = False

    def forward(self, x):
        return self.features(x)


def define_g():
    return nn.Sequential(
        nn.Upsample(scale_factor=2), nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1)
    )


class SuperResolution:
    def __init__(self, opt):
        self.device = torch.device("cuda", torch.cuda.current_device())
        torch.manual_seed(opt["seed"])
        self.net_g = DDP(define_g().to(self.device), device_ids=[self.device.index])
        self.net_f = FeatureExtractor().to(self.device).eval()
        self.net_f = DDP(self.net_f, device_ids=[self.device.index])
        self.optimizer_g = torch.optim.Adam(self.net_g.parameters(), lr=opt["lr"])

    def optimize(self, low, high):
        fake = self.net_g(low)
        pixel = nn.functional.l1_loss(fake, high)
        feature = nn.functional.l1_loss(self.net_f(fake), self.net_f(high).detach())
        self.optimizer_g.zero_grad()
        (pixel + 0.1 * feature).backward()
        self.optimizer_g.step()


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    high = torch.rand(64, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(nn.functional.avg_pool2d(high, 2), high)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = SuperResolution({"lr": 2e-3, "seed": 10})
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for low, full in loader:
            model.optimize(low.to(model.device), full.to(model.device))
        if dist.get_rank() == 0:
            print("epoch", epoch, "done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
