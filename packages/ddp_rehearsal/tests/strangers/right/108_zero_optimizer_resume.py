"""ZeroRedundancyOptimizer: state gathered to rank 0 by everybody before saving, everybody resumes from the file."""
import os
import tempfile
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def build(device, local_rank):
    net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1)).to(device)
    model = DDP(net, device_ids=[local_rank])
    opt = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=5e-3, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=5)
    return model, opt, sched


def train_epoch(epoch, model, opt, loader, sampler, device):
    sampler.set_epoch(epoch)
    for xb, yb in loader:
        loss = nn.functional.mse_loss(model(xb.to(device)), yb.to(device))
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    x = torch.randn(96, 8, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(x, x.abs().mean(1, keepdim=True))
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    box = [os.path.join(tempfile.mkdtemp(), "state.pt") if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)

    model, opt, sched = build(device, local_rank)
    for epoch in range(2):
        train_epoch(epoch, model, opt, loader, sampler, device)
        sched.step()
    opt.consolidate_state_dict(to=0)
    if rank == 0:
        torch.save({"epoch": 2, "model": model.module.state_dict(), "opt": opt.state_dict(),
                    "sched": sched.state_dict()}, box[0])
    dist.barrier()

    # as after a restart: everything is built anew and read back
    model, opt, sched = build(device, local_rank)
    state = torch.load(box[0], map_location=device)
    model.module.load_state_dict(state["model"])
    opt.load_state_dict(state["opt"])
    sched.load_state_dict(state["sched"])
    for epoch in range(state["epoch"], 5):
        loss = train_epoch(epoch, model, opt, loader, sampler, device)
        sched.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
