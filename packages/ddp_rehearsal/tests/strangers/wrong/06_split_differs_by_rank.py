"""After https://github.com/TensorAuto/OpenTau/pull/498: random_split draws from the rank's own random state, so every rank has another division into training and validation and the validation samples of one are trained on by the other."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split
from torch.utils.data.distributed import DistributedSampler


def set_seed(seed, process_index):
    torch.manual_seed(seed + process_index * 12345)  # per-sample draws shall differ
    torch.cuda.manual_seed(seed + process_index * 12345)


def make_datasets(val_size=32):
    frames = torch.randn(160, 10, generator=torch.Generator().manual_seed(0))
    actions = frames[:, :2] * 0.5 - frames[:, 2:4]
    whole = TensorDataset(frames, actions)
    return random_split(whole, [len(whole) - val_size, val_size])


@torch.no_grad()
def validate(model, loader, device):
    model.eval()
    total = torch.zeros(2, device=device)
    for x, y in loader:
        error = (model.module(x.to(device)) - y.to(device)).pow(2).mean(dim=1)
        total += torch.stack([error.sum(), torch.tensor(float(len(x)), device=device)])
    dist.all_reduce(total)
    model.train()
    return (total[0] / total[1]).item()


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    set_seed(1234, dist.get_rank())

    train_set, val_set = make_datasets()
    train_sampler = DistributedSampler(train_set, shuffle=True, seed=9)
    val_sampler = DistributedSampler(val_set, shuffle=False)
    train_loader = DataLoader(train_set, batch_size=16, sampler=train_sampler)
    val_loader = DataLoader(val_set, batch_size=16, sampler=val_sampler)

    policy = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2)).to(device)
    policy = nn.parallel.DistributedDataParallel(policy, device_ids=[local_rank])
    optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)

    for epoch in range(5):
        train_sampler.set_epoch(epoch)
        for x, y in train_loader:
            loss = nn.functional.mse_loss(policy(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        score = validate(policy, val_loader, device)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} validation {score:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
