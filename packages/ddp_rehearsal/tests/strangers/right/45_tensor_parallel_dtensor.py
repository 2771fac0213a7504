"""Style: DTensor tensor parallelism with a parallelize plan; modelled on https://github.com/pytorch/examples/blob/main/distributed/tensor_parallelism/tensor_parallel_example.py"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class FeedForward(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class ToyModel(nn.Module):
    """SwiGLU blocks; normalisation without weights, so that all parameters are DTensors."""

    def __init__(self, dim=16, hidden=64, n_layers=2):
        super().__init__()
        self.dim = dim
        self.layers = nn.ModuleList(FeedForward(dim, hidden) for _ in range(n_layers))

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(F.layer_norm(x, (self.dim,)))
        return x


def rank_log(rank, msg):
    if rank == 0:
        print(msg)


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    world_size = int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(local_rank)
    # create a device mesh based on the given world_size; this starts the process group as well
    device_mesh = init_device_mesh(device_type="cuda", mesh_shape=(world_size,))
    rank = device_mesh.get_rank()
    assert world_size % 2 == 0, f"TP examples require even number of GPUs, but got {world_size} gpus"

    torch.manual_seed(0)
    tp_model = ToyModel().to("cuda")
    plan = {}
    for i in range(len(tp_model.layers)):
        plan[f"layers.{i}.w1"] = ColwiseParallel()
        plan[f"layers.{i}.w2"] = RowwiseParallel()
        plan[f"layers.{i}.w3"] = ColwiseParallel()
    tp_model = parallelize_module(module=tp_model, device_mesh=device_mesh, parallelize_plan=plan)
    w1 = tp_model.layers[0].w1.weight
    rank_log(rank, f"w1 is {tuple(w1.shape)} as a whole and {tuple(w1.to_local().shape)} here")

    optimizer = torch.optim.AdamW(tp_model.parameters(), lr=1e-2, foreach=True)
    num_iters = 25
    rank_log(rank, "Tensor Parallel training starting...")
    for i in range(num_iters):
        # For TP, input needs to be the same across all TP ranks.
        # Setting the random seed mimics the behavior of a data loader.
        torch.manual_seed(i)
        inp = torch.rand(20, 16, device="cuda")
        loss = F.mse_loss(tp_model(inp), inp.flip(1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if i % 8 == 0:
            rank_log(rank, f"iter {i} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
