"""fully_shard per block and for the root, accumulation by the sync flag, DTensor norm, full state dict for rank 0."""
import os
import tempfile
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Residual(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up, self.down = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, h):
        return h + self.down(torch.relu(self.up(h)))


class Net(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.inp = nn.Linear(12, dim)
        self.layers = nn.ModuleList(Residual(dim) for _ in range(3))
        self.out = nn.Linear(dim, 4)

    def forward(self, x):
        h = self.inp(x)
        for layer in self.layers:
            h = layer(h)
        return self.out(h)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    x = torch.randn(128, 12, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(x, x[:, :4].argmax(1))
    sampler = DistributedSampler(data, shuffle=True, drop_last=True)
    loader = DataLoader(data, batch_size=4, sampler=sampler, drop_last=True)

    torch.manual_seed(0)                      # the same first weights everywhere: sharding does not send them round
    model = Net().to(device)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
    out = tempfile.mkdtemp() if rank == 0 else None
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for i, (xb, yb) in enumerate(loader):
            last = i % 2 == 1
            model.set_requires_gradient_sync(last)
            loss = nn.functional.cross_entropy(model(xb.to(device)), yb.to(device))
            (loss / 2).backward()
            if last:
                norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
                opt.step()
                opt.zero_grad()
        full = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        if rank == 0:
            torch.save(full, os.path.join(out, "model.pt"))
            print(f"epoch {epoch} loss {loss.item():.4f} gradient norm {norm.item():.3f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
