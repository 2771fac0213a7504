"""After https://github.com/menzelab/implicit-shape-reconstruction/issues/2: the state_dict of the wrapper is saved, with `module.` before every name, and does not fit the bare model into which it is loaded."""
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def shape_net():
    return nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))


def sphere(count, seed):
    points = 2 * torch.rand(count, 3, generator=torch.Generator().manual_seed(seed)) - 1
    return TensorDataset(points, points.norm(dim=1, keepdim=True) - 0.5)


def train(net, data, device, epochs):
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for points, distance in loader:
            loss = nn.functional.l1_loss(net(points.to(device)), distance.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@torch.no_grad()
def evaluate(path, device, rank, world_size):
    net = shape_net().to(device).eval()
    net.load_state_dict(torch.load(path, map_location=device, weights_only=True))
    points, distance = (t[rank::world_size].to(device) for t in sphere(200, seed=1).tensors)
    error = (net(points) - distance).abs().sum() / 200
    dist.all_reduce(error)
    return error.item()


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    path = os.path.join(tempfile.gettempdir(), f"shape_{os.environ['MASTER_PORT']}.pt")

    torch.manual_seed(0)
    net = DistributedDataParallel(shape_net().to(device), device_ids=[device.index])
    train(net, sphere(128, seed=0), device, epochs=3)
    if rank == 0:
        torch.save(net.state_dict(), path)
    dist.barrier()

    error = evaluate(path, device, rank, world_size)
    if rank == 0:
        print(f"mean error {error:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
