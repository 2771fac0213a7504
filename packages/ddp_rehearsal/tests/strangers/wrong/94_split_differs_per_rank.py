"""Policy training with a held-out split, reduced from
https://github.com/TensorAuto/OpenTau/pull/498
(the seed is offset per rank, and random_split draws from that global generator)
"""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split


def set_seed(seed):
    torch.manual_seed(seed + dist.get_rank() * 12345)


def make_dataset():
    g = torch.Generator().manual_seed(0)
    obs = torch.randn(120, 10, generator=g)
    return TensorDataset(obs, torch.tanh(obs[:, :2]))


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    device = torch.device("cuda", local_rank)
    set_seed(1234)

    train_set, val_set = random_split(make_dataset(), [96, 24])
    sampler = DistributedSampler(train_set, shuffle=True, seed=0)
    train_loader = DataLoader(train_set, batch_size=8, sampler=sampler)
    val_loader = DataLoader(val_set, batch_size=8)

    model = DDP(nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2)).to(device), device_ids=[local_rank])
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        model.train()
        for obs, act in train_loader:
            loss = nn.functional.mse_loss(model(obs.to(device)), act.to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()
        model.eval()
        stats = torch.zeros(2, device=device)
        with torch.no_grad():
            for obs, act in val_loader:
                err = (model(obs.to(device)) - act.to(device)).pow(2).mean(1)
                stats += torch.stack([err.sum(), torch.tensor(float(len(err)), device=device)])
        dist.all_reduce(stats)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: val mse {(stats[0] / stats[1]).item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
