"""After https://github.com/meta-pytorch/opacus/issues/432: the BatchNorm layers are replaced by GroupNorm after the optimizer was given the parameters, so the new layers' weights are never updated."""
import os

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def fix(module, groups=4):
    """Puts GroupNorm in the place of every BatchNorm2d."""
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(module, name, nn.GroupNorm(groups, child.num_features))
        else:
            fix(child, groups)
    return module


def small_resnet():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
    )


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    torch.manual_seed(6)

    model = small_resnet()
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    model = fix(model).cuda(local_rank)
    model = DistributedDataParallel(model, device_ids=[local_rank])

    g = torch.Generator().manual_seed(3)
    x = torch.randn(128, 3, 8, 8, generator=g)
    y = torch.randint(0, 4, (128,), generator=g)
    dataset = TensorDataset(x, y)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)

    for epoch in range(4):
        sampler.set_epoch(epoch)
        total = torch.zeros((), device=local_rank)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images.cuda(local_rank)), labels.cuda(local_rank))
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(epoch, total.item() / len(loader) / dist.get_world_size(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
