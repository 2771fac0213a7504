"""Tensor parallelism with DTensor: both ranks hold half of each MLP and must work on the very same batch."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader, TensorDataset


class MLP(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, h):
        return h + self.down(nn.functional.gelu(self.up(h)))


class Net(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.inp = nn.Linear(8, dim)
        self.mlps = nn.ModuleList(MLP(dim) for _ in range(2))
        self.out = nn.Linear(dim, 3)

    def forward(self, x):
        h = self.inp(x)
        for mlp in self.mlps:
            h = mlp(h)
        return self.out(h)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("tp",))
    torch.manual_seed(0)                                # one model, one order of the data
    model = Net().to(device)
    for mlp in model.mlps:
        parallelize_module(mlp, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=False)     # plain and sharded weights together
    x = torch.randn(112, 8, generator=torch.Generator().manual_seed(1))
    loader = DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=8, shuffle=True,
                        generator=torch.Generator().manual_seed(2))         # no sampler: nothing is split by data
    for epoch in range(2):
        for xb, yb in loader:
            loss = nn.functional.cross_entropy(model(xb.to(device)), yb.to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
