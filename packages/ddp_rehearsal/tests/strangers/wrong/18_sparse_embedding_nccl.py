"""After https://github.com/Lightning-AI/pytorch-lightning/issues/5355: nn.Embedding(sparse=True) under DDP with NCCL, which cannot reduce sparse gradients."""
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class ItemRanker(nn.Module):
    def __init__(self, items, width):
        super().__init__()
        self.items = nn.Embedding(items, width, sparse=True)
        self.score = nn.Sequential(nn.Linear(2 * width, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, pair):
        return self.score(self.items(pair).flatten(1)).squeeze(1)


def clicks(items, count=192):
    g = torch.Generator().manual_seed(21)
    pair = torch.randint(0, items, (count, 2), generator=g)
    return TensorDataset(pair, (pair[:, 0] > pair[:, 1]).float())


def main(args):
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    device = torch.device("cuda", local_rank)

    torch.manual_seed(0)
    model = ItemRanker(args.items, args.width).to(device)
    model = nn.parallel.DistributedDataParallel(model, device_ids=[local_rank])
    optimizers = [
        torch.optim.SparseAdam(list(model.module.items.parameters()), lr=0.01),
        torch.optim.Adam(model.module.score.parameters(), lr=0.01),
    ]

    data = clicks(args.items)
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=args.batch, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for pair, clicked in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(pair.to(device)), clicked.to(device))
            for o in optimizers:
                o.zero_grad()
            loss.backward()
            for o in optimizers:
                o.step()
        mean = loss.detach()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {mean.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--items", type=int, default=50)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=3)
    main(parser.parse_args())
