"""Snapshot and resume, reduced from
https://github.com/pytorch/examples/issues/1078
(the snapshot was written from cuda:0; without map_location every rank loads it back onto cuda:0)
"""
import os
import tempfile
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Trainer:
    def __init__(self, model, loader, optimizer, gpu_id, snapshot_path):
        self.gpu_id, self.loader, self.optimizer, self.path = gpu_id, loader, optimizer, snapshot_path
        self.model, self.epochs_run, self.snapshot = model.to(gpu_id), 0, None
        if os.path.exists(snapshot_path):
            self._load_snapshot()
        self.model = DDP(self.model, device_ids=[gpu_id])

    def _load_snapshot(self):
        self.snapshot = torch.load(self.path)
        self.model.load_state_dict(self.snapshot["MODEL_STATE"])
        self.epochs_run = self.snapshot["EPOCHS_RUN"]

    def _save_snapshot(self, epoch):
        torch.save({"MODEL_STATE": self.model.module.state_dict(), "EPOCHS_RUN": epoch + 1}, self.path)

    def train(self, max_epochs):
        for epoch in range(self.epochs_run, max_epochs):
            self.loader.sampler.set_epoch(epoch)
            for x, y in self.loader:
                self.optimizer.zero_grad()
                loss = nn.functional.mse_loss(self.model(x.to(self.gpu_id)), y.to(self.gpu_id))
                loss.backward()
                self.optimizer.step()
            if self.gpu_id == 0:
                self._save_snapshot(epoch)
        dist.barrier()


def launch(path, max_epochs):
    g = torch.Generator().manual_seed(0)
    x = torch.rand(96, 20, generator=g)
    dataset = TensorDataset(x, x[:, :1])
    loader = DataLoader(dataset, batch_size=8, shuffle=False, sampler=DistributedSampler(dataset))
    model = nn.Linear(20, 1)
    gpu_id = int(os.environ["LOCAL_RANK"])
    model.to(gpu_id)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    Trainer(model, loader, optimizer, gpu_id, path).train(max_epochs)


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(backend="nccl")
    box = [os.path.join(tempfile.mkdtemp(), "snapshot.pt") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(box, src=0)
    launch(box[0], 1)
    launch(box[0], 5)      # restarted by the elastic agent
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
