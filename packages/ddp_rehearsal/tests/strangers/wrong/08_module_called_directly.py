"""After https://github.com/OpenTSLM/OpenTSLM/pull/49: the loss is computed through model.module, past the DDP wrapper, so gradients are never averaged and every rank trains a model of its own."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class SeriesModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Conv1d(1, 8, kernel_size=3, padding=1)
        self.head = nn.Linear(8, 4)

    def forward(self, series):
        return self.head(torch.relu(self.encoder(series)).mean(dim=-1))

    def compute_loss(self, batch):
        series, label = batch
        return nn.functional.cross_entropy(self(series), label)


class CurriculumTrainer:
    def __init__(self):
        self.rank = int(os.environ["RANK"])
        self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(self.device)
        dist.init_process_group("nccl")
        torch.manual_seed(42)
        self.model = DDP(SeriesModel().to(self.device), device_ids=[self.device.index])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)

    def _get_model(self):
        return self.model.module if isinstance(self.model, DDP) else self.model

    def train_stage(self, data, epochs):
        sampler = DistributedSampler(data, shuffle=True)
        loader = DataLoader(data, batch_size=10, sampler=sampler)
        for epoch in range(epochs):
            sampler.set_epoch(epoch)
            running = 0.0
            for batch in loader:
                batch = [t.to(self.device) for t in batch]
                self.optimizer.zero_grad()
                loss = self._get_model().compute_loss(batch)
                loss.backward()
                self.optimizer.step()
                running = running + loss.detach()
            dist.all_reduce(running, op=dist.ReduceOp.AVG)
            if self.rank == 0:
                print(f"epoch {epoch}: {running.item() / len(loader):.4f}", flush=True)


def synthetic():
    g = torch.Generator().manual_seed(0)
    label = torch.arange(80) % 4
    series = torch.randn(80, 1, 12, generator=g) + label.view(-1, 1, 1)
    return TensorDataset(series, label)


if __name__ == "__main__":
    trainer = CurriculumTrainer()
    trainer.train_stage(synthetic(), epochs=4)
    dist.destroy_process_group()
