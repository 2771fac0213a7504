"""After https://github.com/pytorch/pytorch/issues/54059: rank 0 alone evaluates through the DDP wrapper, whose forward broadcasts the BatchNorm buffers, while the others wait in a barrier; model.module should be used."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(4))
        self.fc = nn.Linear(24, 10)

    def forward(self, x):
        return self.fc(self.features(x).flatten(1))


def cifar_like(count, seed):
    g = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(count, 3, 8, 8, generator=g), torch.randint(0, 10, (count,), generator=g))


def validate(model, loader, gpu):
    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in loader:
            right += (model(x.cuda(gpu)).argmax(1) == y.cuda(gpu)).sum().item()
    model.train()
    return right / len(loader.dataset)


def main():
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    dist.init_process_group(backend="nccl")
    torch.manual_seed(0)

    model = DDP(Classifier().cuda(gpu), device_ids=[gpu])
    criterion = nn.CrossEntropyLoss().cuda(gpu)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    train_set, val_set = cifar_like(96, 0), cifar_like(24, 1)
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=12, sampler=sampler)
    val_loader = DataLoader(val_set, batch_size=12)

    for epoch in range(4):
        sampler.set_epoch(epoch)
        for images, labels in train_loader:
            loss = criterion(model(images.cuda(gpu)), labels.cuda(gpu))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if gpu == 0:
            accuracy = validate(model, val_loader, gpu)
            print(f"epoch {epoch}: accuracy {accuracy:.3f}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
