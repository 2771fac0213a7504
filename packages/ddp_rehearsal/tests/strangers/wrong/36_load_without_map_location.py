"""After https://github.com/pytorch/examples/issues/1078: torch.load is called without map_location, so every rank loads the snapshot, saved from cuda:0, onto GPU 0."""
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class RandomPairs(Dataset):
    def __init__(self, size):
        g = torch.Generator().manual_seed(0)
        self.x, self.y = torch.rand(size, 20, generator=g), torch.rand(size, 1, generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class Trainer:
    def __init__(self, model, data, optimizer_class, snapshot_path):
        self.gpu_id = int(os.environ["LOCAL_RANK"])
        self.epochs_run = 0
        self.snapshot_path = snapshot_path
        self.model = model.to(self.gpu_id)
        self.optimizer = optimizer_class(self.model.parameters(), lr=1e-2)
        if os.path.exists(snapshot_path):
            self._load_snapshot()
        self.model = DDP(self.model, device_ids=[self.gpu_id])
        self.sampler = DistributedSampler(data)
        self.loader = DataLoader(data, batch_size=16, sampler=self.sampler)

    def _load_snapshot(self):
        snapshot = torch.load(self.snapshot_path)
        self.model.load_state_dict(snapshot["model"])
        self.optimizer.load_state_dict(snapshot["optimizer"])
        self.epochs_run = snapshot["epochs_run"]

    def _save_snapshot(self, epoch):
        state = {"model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save({**state, "epochs_run": epoch + 1}, self.snapshot_path)

    def train(self, until):
        for epoch in range(self.epochs_run, until):
            self.sampler.set_epoch(epoch)
            for source, target in self.loader:
                loss = F.mse_loss(self.model(source.to(self.gpu_id)), target.to(self.gpu_id))
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            if self.gpu_id == 0:
                self._save_snapshot(epoch)
                print(f"epoch {epoch}: snapshot saved", flush=True)
            dist.barrier()


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(backend="nccl")
    path = os.path.join(tempfile.gettempdir(), f"snapshot_{os.environ['MASTER_PORT']}.pt")
    if dist.get_rank() == 0 and os.path.exists(path):
        os.remove(path)
    dist.barrier()
    for until in (2, 4):  # the second round continues from the snapshot
        torch.manual_seed(0)
        Trainer(torch.nn.Linear(20, 1), RandomPairs(128), torch.optim.Adam, path).train(until)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
