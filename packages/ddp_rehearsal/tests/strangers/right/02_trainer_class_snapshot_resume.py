"""Style: Trainer class with snapshots under torchrun; modelled on https://github.com/pytorch/examples/blob/main/distributed/ddp-tutorial-series/multigpu_torchrun.py"""
import argparse
import os
import shutil
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

class MyTrainDataset(Dataset):
    def __init__(self, size):
        g = torch.Generator().manual_seed(7)  # the same set in every process
        self.data = [(torch.rand(20, generator=g), torch.rand(1, generator=g)) for _ in range(size)]

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return self.data[index]

class Trainer:
    def __init__(self, model, train_data, optimizer, save_every, snapshot_path):
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.global_rank = int(os.environ["RANK"])
        self.model = model.to(self.local_rank)
        self.train_data = train_data
        self.optimizer = optimizer
        self.save_every = save_every
        self.epochs_run = 0
        self.snapshot_path = snapshot_path
        if os.path.exists(snapshot_path):
            self._load_snapshot(snapshot_path)
        self.model = DDP(self.model, device_ids=[self.local_rank])

    def _load_snapshot(self, snapshot_path):
        snapshot = torch.load(snapshot_path, map_location=f"cuda:{self.local_rank}")
        self.model.load_state_dict(snapshot["MODEL_STATE"])
        self.optimizer.load_state_dict(snapshot["OPTIMIZER_STATE"])
        self.epochs_run = snapshot["EPOCHS_RUN"]
        print(f"[GPU{self.global_rank}] Resuming training from snapshot at Epoch {self.epochs_run}")

    def _save_snapshot(self, epoch):
        torch.save({"MODEL_STATE": self.model.module.state_dict(), "OPTIMIZER_STATE": self.optimizer.state_dict(),
                    "EPOCHS_RUN": epoch + 1}, self.snapshot_path)
        print(f"Epoch {epoch} | Training snapshot saved at {self.snapshot_path}")

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad()
        loss = F.mse_loss(self.model(source), targets)
        loss.backward()
        self.optimizer.step()
    def train(self, max_epochs):
        for epoch in range(self.epochs_run, max_epochs):
            self.train_data.sampler.set_epoch(epoch)
            for source, targets in self.train_data:
                self._run_batch(source.to(self.local_rank), targets.to(self.local_rank))
            if self.global_rank == 0 and epoch % self.save_every == 0:
                self._save_snapshot(epoch)

def load_train_objs():
    model = torch.nn.Linear(20, 1)
    return MyTrainDataset(640), model, torch.optim.Adam(model.parameters(), lr=1e-3)

def main(total_epochs, save_every, batch_size):
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    init_process_group(backend="nccl")
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    path = os.path.join(folder[0], "snapshot.pt")
    for upto in (total_epochs // 2, total_epochs):  # the second round stands for a restarted job
        dataset, model, optimizer = load_train_objs()
        loader = DataLoader(dataset, batch_size, pin_memory=True, shuffle=False, sampler=DistributedSampler(dataset))
        Trainer(model, loader, optimizer, save_every, path).train(upto)
        dist.barrier()  # the snapshot is on disk before anyone looks for it
    if dist.get_rank() == 0:
        shutil.rmtree(folder[0])
    destroy_process_group()

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description='simple distributed training job')
    parser.add_argument('--total_epochs', type=int, default=4)
    parser.add_argument('--save_every', type=int, default=1)
    parser.add_argument('--batch_size', default=32, type=int, help='Input batch size on each device')
    args = parser.parse_args()
    main(args.total_epochs, args.save_every, args.batch_size)
