"""After https://github.com/pytorch/pytorch/issues/40403: the data set holds CUDA tensors and is read by forked DataLoader workers, which cannot use CUDA again."""
import os
import random

import torch
import torch.distributed as dist
import torch.utils.data as data
from torch import nn


class DummyDataset(data.Dataset):
    """A synthetic data set, kept on the GPU to save the copies."""

    def __init__(self, device, size=96, num_classes=6):
        g = torch.Generator().manual_seed(0)
        self.pictures = torch.randn(size, 3, 8, 8, generator=g).to(device)
        self.labels = [random.Random(i).randrange(num_classes) for i in range(size)]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        picture = self.pictures[index]
        return picture.flip(-1) if index % 2 else picture * 1.0, self.labels[index]


def small_net(num_classes=6):
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 16, num_classes),
    )


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group(backend="nccl")
    torch.manual_seed(0)

    model = nn.parallel.DistributedDataParallel(small_net().to(device), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    criterion = nn.CrossEntropyLoss()

    train_dataset = DummyDataset(device)
    sampler = data.distributed.DistributedSampler(train_dataset)
    train_loader = data.DataLoader(train_dataset, batch_size=12, sampler=sampler, num_workers=2)

    for epoch in range(4):
        sampler.set_epoch(epoch)
        for inputs, targets in train_loader:
            outputs = model(inputs.to(device))
            loss = criterion(outputs, targets.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print("epoch", epoch, "done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
