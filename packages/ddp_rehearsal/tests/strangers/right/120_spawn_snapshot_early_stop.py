"""mp.spawn (started with python): data cached by rank 0, snapshots, plateau schedule and early stop from the global loss, log per rank."""
import os
import shutil
import socket
import tempfile
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


def load_data(folder, rank):
    path = os.path.join(folder, "cache.pt")
    if rank == 0:
        g = torch.Generator().manual_seed(0)
        x = torch.randn(136, 9, generator=g)
        torch.save({"x": x, "y": x[:, :3].argmax(1)}, path)
    dist.barrier()
    data = torch.load(path)
    return TensorDataset(data["x"][:96], data["y"][:96]), TensorDataset(data["x"][96:], data["y"][96:])


@torch.no_grad()
def global_loss(net, loader, device):
    net.eval()
    sums = torch.zeros(2, device=device)
    for x, y in loader:
        sums[0] += nn.functional.cross_entropy(net(x.to(device)), y.to(device), reduction="sum")
        sums[1] += len(y)
    dist.all_reduce(sums)
    net.train()
    return (sums[0] / sums[1]).item()


def worker(rank, world, port, folder):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world)
    device = torch.device("cuda", rank)
    train_set, val_set = load_data(folder, rank)
    sampler = DistributedSampler(train_set, num_replicas=world, rank=rank, shuffle=True)
    loader = DataLoader(train_set, batch_size=8, sampler=sampler)
    val_loader = DataLoader(Subset(val_set, range(rank, len(val_set), world)), batch_size=8)
    net = nn.Sequential(nn.Linear(9, 24), nn.ReLU(), nn.Linear(24, 3)).to(device)
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.3, patience=1)
    start, best, bad, snapshot = 0, float("inf"), 0, os.path.join(folder, "snapshot.pt")
    if os.path.exists(snapshot):                    # every rank reads it, each onto its own device
        state = torch.load(snapshot, map_location=device)
        net.load_state_dict(state["net"])
        opt.load_state_dict(state["opt"])
        sched.load_state_dict(state["sched"])
        start, best, bad = state["epoch"], state["best"], state["bad"]
    model = DDP(net, device_ids=[rank])
    with open(os.path.join(folder, f"rank{rank}.log"), "a") as log:
        for epoch in range(start, 6):
            sampler.set_epoch(epoch)
            for x, y in loader:
                loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
                opt.zero_grad()
                loss.backward()
                opt.step()
            value = global_loss(net, val_loader, device)
            sched.step(value)
            best, bad = (value, 0) if value < best else (best, bad + 1)
            log.write(f"epoch {epoch} own loss {loss.item():.4f} validation {value:.4f}\n")
            if rank == 0:
                torch.save({"net": net.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict(),
                            "epoch": epoch + 1, "best": best, "bad": bad}, snapshot + ".tmp")
                os.replace(snapshot + ".tmp", snapshot)
            if bad >= 3:                            # the same on every rank
                break
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    world_size = torch.cuda.device_count()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        free_port = s.getsockname()[1]
    shared = tempfile.mkdtemp()
    try:
        mp.spawn(worker, args=(world_size, free_port, shared), nprocs=world_size, join=True)
    finally:
        shutil.rmtree(shared)
