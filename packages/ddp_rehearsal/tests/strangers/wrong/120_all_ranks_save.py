"""Contrastive trainer that keeps its best model, reduced from
https://github.com/kakaobrain/scrl/issues/5
(the best checkpoint is saved by every process, all into the same file at the same time)
"""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Trainer:
    def __init__(self, save_dir, device, local_rank):
        self.save_dir, self.device = save_dir, device
        g = torch.Generator().manual_seed(0)
        x = torch.randn(96, 9, generator=g)
        dataset = TensorDataset(x, x + 0.2 * torch.randn(96, 9, generator=g))
        self.sampler = DistributedSampler(dataset, shuffle=True)
        self.loader = DataLoader(dataset, batch_size=8, sampler=self.sampler)
        net = nn.Sequential(nn.Linear(9, 24), nn.ReLU(), nn.Linear(24, 8)).to(device)
        self.model = DDP(net, device_ids=[local_rank])
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.best = float("inf")

    def _save_checkpoint(self, tag, epoch):
        torch.save({"tag": tag, "epoch": epoch, "model": self.model.module.state_dict(),
                    "optimizer": self.opt.state_dict()}, os.path.join(self.save_dir, f"checkpoint_{tag}.pth"))

    def run(self, epochs):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            total = torch.zeros((), device=self.device)
            for a, b in self.loader:
                z = F.normalize(self.model(torch.cat([a, b]).to(self.device)), dim=1)
                za, zb = z.chunk(2)
                loss = F.cross_entropy(za @ zb.t() / 0.2, torch.arange(len(za), device=self.device))
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                total += loss.detach()
            dist.all_reduce(total)
            if total.item() < self.best:
                self.best = total.item()
                self._save_checkpoint("best", epoch)
            if dist.get_rank() == 0:
                print("epoch", epoch, "mean loss", total.item() / len(self.loader) / dist.get_world_size())


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    os.makedirs("scrl_out", exist_ok=True)
    Trainer("scrl_out", torch.device("cuda", local_rank), local_rank).run(5)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
