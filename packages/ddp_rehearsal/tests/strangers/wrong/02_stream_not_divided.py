"""After https://github.com/huggingface/datasets/issues/5360: the IterableDataset is not divided between the ranks, so every GPU reads the whole stream and all of them train on the same samples."""
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


@dataclass
class Config:
    documents: int = 320
    batch: int = 16
    features: int = 12
    lr: float = 0.05


class DocumentStream(IterableDataset):
    """Reads documents one after the other, as from a remote file."""

    def __init__(self, cfg):
        self.cfg = cfg

    def __iter__(self):
        weights = torch.linspace(-1, 1, self.cfg.features)
        for number in range(self.cfg.documents):
            g = torch.Generator().manual_seed(number)
            document = torch.randn(self.cfg.features, generator=g)
            yield document, (document @ weights).unsqueeze(0)


class Trainer:
    def __init__(self, cfg):
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.device = f"cuda:{self.local_rank}"
        torch.cuda.set_device(self.device)
        dist.init_process_group(backend="nccl")
        torch.manual_seed(3)
        net = torch.nn.Sequential(torch.nn.Linear(cfg.features, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
        self.model = DDP(net.to(self.device), device_ids=[self.local_rank])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=cfg.lr)
        self.loader = DataLoader(DocumentStream(cfg), batch_size=cfg.batch)

    def fit(self):
        for step, (x, y) in enumerate(self.loader):
            x, y = x.to(self.device), y.to(self.device)
            loss = F.mse_loss(self.model(x), y)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            if step % 5 == 0:
                mean = loss.detach().clone()
                dist.all_reduce(mean, op=dist.ReduceOp.AVG)
                if dist.get_rank() == 0:
                    print(step, round(mean.item(), 4), flush=True)


if __name__ == "__main__":
    trainer = Trainer(Config())
    trainer.fit()
    dist.destroy_process_group()
