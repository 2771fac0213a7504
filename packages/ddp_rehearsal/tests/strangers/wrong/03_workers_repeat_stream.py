"""After https://github.com/huggingface/datasets/issues/3423: the streaming dataset is divided between ranks but not between the DataLoader's workers, so with num_workers=2 every sample comes twice."""
import itertools
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


def read_lines(path="memory", count=96):
    for i in range(count):
        yield f"{i} {(i * 37) % 101} {(i * 53) % 89} {(i * 11) % 7}"


class LineDataset(IterableDataset):
    def __init__(self, rank, world_size):
        super().__init__()
        self.rank, self.world_size = rank, world_size

    def __iter__(self):
        mine = itertools.islice(read_lines(), self.rank, None, self.world_size)
        for line in mine:
            number, a, b, label = map(int, line.split())
            yield torch.tensor([a / 101, b / 89, number / 96]), label


def run():
    rank, local, world = (int(os.environ[k]) for k in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    torch.cuda.set_device(local)
    dist.init_process_group("nccl", rank=rank, world_size=world)
    dev = torch.device("cuda", local)

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 7)).to(dev)
    net = nn.parallel.DistributedDataParallel(net, device_ids=[local])
    opt = torch.optim.AdamW(net.parameters(), lr=1e-2)

    loader = DataLoader(LineDataset(rank, world), batch_size=8, num_workers=2)
    losses = []
    for x, y in loader:
        out = net(x.to(dev, non_blocking=True))
        loss = nn.functional.cross_entropy(out, y.to(dev))
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.detach())

    mean = torch.stack(losses).mean()
    dist.all_reduce(mean)
    if rank == 0:
        print(f"{len(losses)} steps, mean loss {mean.item() / world:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    run()
