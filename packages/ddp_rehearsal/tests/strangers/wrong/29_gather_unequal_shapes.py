"""After https://github.com/Lightning-AI/pytorch-lightning/issues/7773: all_gather is called with predictions whose number differs between the ranks in the last validation batch, each rank having made receive buffers of its own size."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


def gather_all(tensor):
    parts = [torch.zeros_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor.contiguous())
    return torch.cat(parts)


def regression_set(count, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 5, generator=g)
    return TensorDataset(x, x.max(dim=1).values)


class Runner:
    def __init__(self):
        self.local_rank = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(self.local_rank)
        dist.init_process_group("nccl")
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1)).cuda()
        self.model = nn.parallel.DistributedDataParallel(net, device_ids=[self.local_rank])
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=5e-3)

        train = regression_set(64, 0)
        self.sampler = DistributedSampler(train)
        self.train_loader = DataLoader(train, batch_size=8, sampler=self.sampler)
        val = regression_set(41, 1)
        mine = Subset(val, range(self.rank, len(val), self.world))  # each sample exactly once
        self.val_loader = DataLoader(mine, batch_size=8)

    def train_epoch(self, epoch):
        self.sampler.set_epoch(epoch)
        for x, y in self.train_loader:
            loss = nn.functional.mse_loss(self.model(x.cuda()).squeeze(1), y.cuda())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    @torch.no_grad()
    def validate(self):
        predictions, targets = [], []
        for x, y in self.val_loader:
            predictions.append(gather_all(self.model.module(x.cuda()).squeeze(1)))
            targets.append(gather_all(y.cuda()))
        return nn.functional.l1_loss(torch.cat(predictions), torch.cat(targets)).item()


if __name__ == "__main__":
    runner = Runner()
    for epoch in range(5):
        runner.train_epoch(epoch)
        error = runner.validate()
        if runner.rank == 0:
            print(f"epoch {epoch}: error {error:.4f}", flush=True)
    dist.destroy_process_group()
