"""After https://github.com/vllm-project/speculators/pull/926: when the run is resumed only rank 0 loads the optimizer's state, the other ranks begin with empty Adam moments and take other steps."""
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

CHECKPOINT = os.path.join(tempfile.gettempdir(), f"resume_{os.environ.get('MASTER_PORT', '0')}.pt")


def build(device):
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).to(device)
    ddp = DDP(model, device_ids=[device.index])
    return ddp, torch.optim.Adam(ddp.parameters(), lr=0.01)


def save(ddp, optimizer, epoch):
    if dist.get_rank() == 0:
        torch.save({"model": ddp.module.state_dict(), "optim": optimizer.state_dict(), "epoch": epoch}, CHECKPOINT)
    dist.barrier()


def resume(ddp, optimizer, device):
    state = torch.load(CHECKPOINT, map_location=device, weights_only=True)
    ddp.module.load_state_dict(state["model"])
    if dist.get_rank() == 0:
        optimizer.load_state_dict(state["optim"])
    return state["epoch"] + 1


def train_epoch(ddp, optimizer, loader, sampler, epoch, device):
    sampler.set_epoch(epoch)
    for x, y in loader:
        loss = nn.functional.mse_loss(ddp(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(x, x.prod(dim=1, keepdim=True))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)

    ddp, optimizer = build(device)
    for epoch in range(2):
        train_epoch(ddp, optimizer, loader, sampler, epoch, device)
    save(ddp, optimizer, epoch)

    ddp, optimizer = build(device)  # as after a restart
    for epoch in range(resume(ddp, optimizer, device), 5):
        train_epoch(ddp, optimizer, loader, sampler, epoch, device)
    if dist.get_rank() == 0:
        print("finished epoch", epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
