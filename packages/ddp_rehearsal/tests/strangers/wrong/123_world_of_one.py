"""Start-up line copied from a single-GPU work-around, reduced from
https://github.com/megvii-model/YOLOF/issues/11
(init_process_group with rank=0, world_size=1 and a private file: under torchrun each process is alone)
"""
import os
import tempfile
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    store = os.path.join(tempfile.mkdtemp(), "somefile")
    dist.init_process_group("nccl", init_method=f"file://{store}", rank=0, world_size=1)

    g = torch.Generator().manual_seed(0)
    x = torch.randn(192, 8, generator=g)
    dataset = TensorDataset(x, x[:, :2].abs())
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 2)).to(device), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            loss = nn.functional.smooth_l1_loss(model(xb.to(device)), yb.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if local_rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
