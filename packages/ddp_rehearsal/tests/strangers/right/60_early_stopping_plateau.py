"""Style: early stopping decided by rank 0 and broadcast, ReduceLROnPlateau on the reduced loss, best weights restored, SWA at the end; after common practice, no single source"""
import io
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split

class EarlyStopping:
    def __init__(self, patience, min_delta):
        self.patience, self.min_delta = patience, min_delta
        self.best, self.bad, self.snapshot = float("inf"), 0, None

    def update(self, value, state_dict):
        """Returns True when it is time to stop; keeps the best weights in memory."""
        if value < self.best - self.min_delta:
            self.best, self.bad = value, 0
            self.snapshot = io.BytesIO()
            torch.save(state_dict, self.snapshot)
        else:
            self.bad += 1
        return self.bad >= self.patience

def broadcast_flag(flag, device):
    t = torch.tensor([1 if flag else 0], dtype=torch.uint8, device=device)
    dist.broadcast(t, src=0)
    return bool(t.item())

@torch.no_grad()
def validate(net, loader, device):
    net.eval()
    sums = torch.zeros(2, dtype=torch.float64, device=device)
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        sums[0] += nn.functional.mse_loss(net(x), y, reduction="sum").double()
        sums[1] += y.numel()
    dist.all_reduce(sums)
    return (sums[0] / sums[1]).item()  # the same number on every rank

def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()

    g = torch.Generator().manual_seed(13)
    x = torch.randn(420, 8, generator=g)
    full = TensorDataset(x, x.sin().sum(1, keepdim=True))
    train_set, val_set = random_split(full, [320, 100], generator=torch.Generator().manual_seed(13))  # one split for all
    sampler = DistributedSampler(train_set, seed=13)
    train_loader = DataLoader(train_set, batch_size=32 // world, sampler=sampler)
    val_loader = DataLoader(torch.utils.data.Subset(val_set, range(rank, 100, world)), batch_size=50)

    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1)).to(device), device_ids=[local_rank])
    swa = AveragedModel(model.module)
    optimizer = torch.optim.NAdam(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="min", factor=0.5, patience=1)
    stopper = EarlyStopping(patience=1, min_delta=10.0) if rank == 0 else None  # big delta: stops in this short run
    for epoch in range(6):
        model.train()
        sampler.set_epoch(epoch)
        for xb, yb in train_loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(xb.to(device)), yb.to(device))
            loss.backward()
            optimizer.step()
        swa.update_parameters(model.module)
        val_loss = validate(model.module, val_loader, device)
        scheduler.step(val_loss)
        stop = stopper.update(val_loss, model.module.state_dict()) if rank == 0 and epoch >= 1 else False
        if rank == 0:
            print(f"epoch {epoch}: val {val_loss:.5f} lr {optimizer.param_groups[0]['lr']:.4f}")
        if broadcast_flag(stop, device):  # all ranks leave the loop in the same epoch
            break

    best = [stopper.snapshot.getvalue() if rank == 0 else None]
    dist.broadcast_object_list(best, src=0)
    model.module.load_state_dict(torch.load(io.BytesIO(best[0]), map_location=device))
    final, averaged = validate(model.module, val_loader, device), validate(swa, val_loader, device)
    if rank == 0:
        print(f"stopped after epoch {epoch}; best weights {final:.5f}, average of weights {averaged:.5f}")
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
