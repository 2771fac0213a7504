"""After https://github.com/NVlabs/LongLive/issues/71: every rank gives its DistributedSampler another seed, so the ranks cut slices out of different permutations: their shares overlap and other samples are never used."""
import os
import random

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Clips(Dataset):
    def __init__(self, n=80):
        rng = np.random.RandomState(5)
        self.video = torch.from_numpy(rng.randn(n, 3, 8).astype("float32"))
        self.target = self.video.mean(dim=2)

    def __len__(self):
        return len(self.video)

    def __getitem__(self, i):
        return self.video[i], self.target[i]


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    torch.cuda.manual_seed(seed)


def main(base_seed=123):
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()

    # noise, dropout and so on shall differ from rank to rank
    seed = base_seed + 1000 * rank
    seed_everything(seed)

    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(24, 32), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 3)
    ).cuda()
    model = DistributedDataParallel(model, device_ids=[local_rank])
    optim = torch.optim.Adam(model.parameters(), lr=2e-3)

    dataset = Clips()
    sampler = DistributedSampler(dataset, num_replicas=world, rank=rank, shuffle=True, drop_last=True, seed=seed)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)

    for epoch in range(4):
        sampler.set_epoch(epoch)
        for clip, target in loader:
            loss = (model(clip.cuda()) - target.cuda()).pow(2).mean()
            optim.zero_grad()
            loss.backward()
            optim.step()
        shown = loss.detach()
        dist.all_reduce(shown, op=dist.ReduceOp.AVG)
        if rank == 0:
            print(epoch, shown.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
