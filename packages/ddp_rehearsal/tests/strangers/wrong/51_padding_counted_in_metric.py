"""After https://github.com/roboflow/rf-detr/issues/1507: the DistributedSampler of the validation set repeats samples until it can be divided by the number of ranks, and the merged metric counts the repeated ones."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Crops(Dataset):
    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.crop = torch.randn(count, 14, generator=g)
        self.kind = self.crop[:, :4].argmax(dim=1)

    def __len__(self):
        return len(self.kind)

    def __getitem__(self, image_id):
        return self.crop[image_id], self.kind[image_id]


class MergedAccuracy:
    def __init__(self, device):
        self.state = torch.zeros(2, dtype=torch.float64, device=device)

    def update(self, prediction, kind):
        self.state[0] += (prediction == kind).sum()
        self.state[1] += kind.numel()

    def merge_distributed_state(self):
        dist.all_reduce(self.state)
        return int(self.state[0]), int(self.state[1])


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    torch.manual_seed(0)

    net = nn.Sequential(nn.Linear(14, 28), nn.ReLU(), nn.Linear(28, 4)).to(device)
    ddp = DistributedDataParallel(net, device_ids=[local_rank])
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=5e-3)

    train, valid = Crops(64, seed=0), Crops(21, seed=1)
    train_sampler = DistributedSampler(train, shuffle=True)
    valid_sampler = DistributedSampler(valid, shuffle=False)
    train_loader = DataLoader(train, batch_size=8, sampler=train_sampler)
    valid_loader = DataLoader(valid, batch_size=4, sampler=valid_sampler)

    for epoch in range(4):
        train_sampler.set_epoch(epoch)
        ddp.train()
        for crop, kind in train_loader:
            loss = nn.functional.cross_entropy(ddp(crop.to(device)), kind.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        ddp.eval()
        metric = MergedAccuracy(device)
        with torch.no_grad():
            for crop, kind in valid_loader:
                metric.update(ddp.module(crop.to(device)).argmax(1), kind.to(device))
        right, images = metric.merge_distributed_state()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {right} of {images} images, accuracy {right / images:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
