"""Train, then collect every prediction of the test set and score it.

torchrun --nproc-per-node=2 wrong_05_collect_predictions.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def blobs(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (n,), generator=g)
    centers = torch.tensor([[2.0, 0.0], [-2.0, 0.0], [0.0, 2.5]])
    return centers[y] + 0.4 * torch.randn(n, 2, generator=g), y


def predict_all(model, dataset, device):
    """Predictions for the whole test set, the same on every rank."""
    sampler = DistributedSampler(dataset, shuffle=False)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    model.eval()
    mine = []
    with torch.no_grad():
        for x, _ in loader:
            mine.append(model(x.to(device)).argmax(1))
    mine = torch.cat(mine)
    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, mine)
    return torch.cat(parts)


def main():
    dist.init_process_group(backend="nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    torch.manual_seed(3)

    x, y = blobs(320, 0)
    train = TensorDataset(x, y)
    xt, yt = blobs(64, 1)
    test = TensorDataset(xt, yt)

    model = DDP(nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 3)).to(device),
                device_ids=[local_rank])
    opt = torch.optim.Adam(model.parameters(), lr=0.02)
    sampler = DistributedSampler(train, shuffle=True)
    loader = DataLoader(train, batch_size=16, sampler=sampler)

    for epoch in range(2):
        sampler.set_epoch(epoch)
        model.train()
        for xb, yb in loader:
            loss = nn.functional.cross_entropy(model(xb.to(device)), yb.to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()

    preds = predict_all(model, test, device)
    if dist.get_rank() == 0:
        acc = (preds.cpu() == yt).float().mean().item()
        print(f"test accuracy {acc:.3f} on {len(preds)} samples", flush=True)

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
