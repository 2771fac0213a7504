"""After https://github.com/Peterande/D-FINE/issues/289: a fixed device cuda:0, left over from debugging, is used by all processes, so NCCL finds two ranks on one GPU."""
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class BoxHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(12, 24)
        self.boxes = nn.Linear(24, 4)

    def forward(self, x):
        return self.boxes(torch.relu(self.body(x))).sigmoid()


class Solver:
    def __init__(self, cfg):
        self.cfg = cfg
        self.device = torch.device(cfg.device)
        self.model = DistributedDataParallel(BoxHead().to(self.device))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr)
        g = torch.Generator().manual_seed(cfg.seed)
        feature = torch.randn(120, 12, generator=g)
        self.data = TensorDataset(feature, feature[:, :4].sigmoid())
        self.sampler = DistributedSampler(self.data)
        self.loader = DataLoader(self.data, batch_size=12, sampler=self.sampler)

    def fit(self):
        for epoch in range(self.cfg.epochs):
            self.sampler.set_epoch(epoch)
            for feature, box in self.loader:
                loss = nn.functional.l1_loss(self.model(feature.to(self.device)), box.to(self.device))
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            mean = loss.detach()
            dist.all_reduce(mean, op=dist.ReduceOp.AVG)
            if dist.get_rank() == 0:
                print(f"epoch {epoch} l1 {mean.item():.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-d", "--device", default="cuda:0")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    cfg = parser.parse_args()
    dist.init_process_group("nccl", init_method="env://")
    torch.manual_seed(cfg.seed)
    Solver(cfg).fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
