"""After https://github.com/wkentaro/pytorch-fcn/pull/56: the validation in the middle of an epoch puts the model into eval mode and never back, so the rest of the epoch trains without dropout and with frozen BatchNorm statistics."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class SmallFCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.drop = nn.Dropout2d(0.3)
        self.score = nn.Conv2d(8, 3, 1)

    def forward(self, x):
        return self.score(self.drop(torch.relu(self.norm(self.conv(x)))))


def scenes(count, seed):
    x = torch.randn(count, 3, 6, 6, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, x.argmax(dim=1))


class Trainer:
    interval_validate = 3

    def __init__(self, gpu):
        self.gpu = gpu
        torch.manual_seed(0)
        self.model = DDP(SmallFCN().cuda(gpu), device_ids=[gpu])
        torch.cuda.manual_seed(10 + dist.get_rank())
        self.optim = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        train, val = scenes(128, 0), scenes(32, 1)
        self.sampler = DistributedSampler(train)
        self.train_loader = DataLoader(train, batch_size=8, sampler=self.sampler)
        self.val_loader = DataLoader(val, batch_size=8, sampler=DistributedSampler(val, shuffle=False))
        self.iteration = 0

    def validate(self):
        self.model.eval()
        right = torch.zeros(2, device=self.gpu)
        with torch.no_grad():
            for x, y in self.val_loader:
                hit = self.model.module(x.cuda(self.gpu)).argmax(1) == y.cuda(self.gpu)
                right += torch.tensor([hit.sum().item(), hit.numel()], device=self.gpu)
        dist.all_reduce(right)
        if dist.get_rank() == 0:
            print(f"iteration {self.iteration}: {right[0].item() / right[1].item():.3f}", flush=True)

    def train_epoch(self, epoch):
        self.sampler.set_epoch(epoch)
        self.model.train()
        for x, y in self.train_loader:
            if self.iteration and self.iteration % self.interval_validate == 0:
                self.validate()
            loss = nn.functional.cross_entropy(self.model(x.cuda(self.gpu)), y.cuda(self.gpu))
            self.optim.zero_grad()
            loss.backward()
            self.optim.step()
            self.iteration += 1


if __name__ == "__main__":
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    trainer = Trainer(local_rank)
    for epoch in range(3):
        trainer.train_epoch(epoch)
    dist.destroy_process_group()
