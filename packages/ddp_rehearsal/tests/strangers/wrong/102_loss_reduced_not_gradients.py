"""Data parallelism by hand, reduced from the snippet in
https://github.com/NVIDIA/Megatron-LM/issues/673
(all_reduce on the loss changes its value, not the gradients; nothing averages those)
"""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    world = dist.get_world_size()

    g = torch.Generator().manual_seed(9)
    x = torch.rand(96, 10, generator=g)
    dataset = TensorDataset(x, x @ torch.randn(10, 1, generator=g))
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler)

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 1)).to(device)
    for t in net.state_dict().values():
        dist.broadcast(t, src=0)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)

    for epoch in range(5):
        sampler.set_epoch(epoch)
        for xb, yb in loader:
            loss = nn.functional.mse_loss(net(xb.to(device)), yb.to(device))
            if world > 1:
                dist.all_reduce(loss, op=dist.ReduceOp.SUM)
                loss = loss / world
            opt.zero_grad()
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
