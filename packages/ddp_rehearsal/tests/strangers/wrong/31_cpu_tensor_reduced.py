"""After https://github.com/pytorch/examples/issues/1030: the meter that sums up the metrics builds its tensor on the CPU and hands it to all_reduce, which NCCL cannot do."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class AverageMeter:
    def __init__(self, name):
        self.name = name
        self.sum, self.count = 0.0, 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n

    def all_reduce(self):
        total = torch.tensor([self.sum, self.count], dtype=torch.float32)
        dist.all_reduce(total, dist.ReduceOp.SUM)
        self.sum, self.count = total.tolist()

    @property
    def avg(self):
        return self.sum / max(self.count, 1)


def images(count, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 3, 6, 6, generator=g)
    return TensorDataset(x, (x.mean(dim=(2, 3))).argmax(dim=1))


def main():
    gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl")
    torch.manual_seed(0)

    model = nn.Sequential(nn.Flatten(), nn.Linear(108, 24), nn.ReLU(), nn.Linear(24, 3)).cuda(gpu)
    model = DistributedDataParallel(model, device_ids=[gpu])
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
    train_set = images(96, 0)
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=12, sampler=sampler)

    for epoch in range(5):
        losses, top1 = AverageMeter("loss"), AverageMeter("acc@1")
        sampler.set_epoch(epoch)
        for x, target in loader:
            x, target = x.cuda(gpu, non_blocking=True), target.cuda(gpu, non_blocking=True)
            output = model(x)
            loss = criterion(output, target)
            losses.update(loss.item(), len(x))
            top1.update((output.argmax(1) == target).float().mean().item(), len(x))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses.all_reduce()
        top1.all_reduce()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} {losses.name} {losses.avg:.3f} {top1.name} {top1.avg:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
