"""Style: FSDP2, gradient accumulation without sync, sharded checkpoint (DCP) saved and loaded; after https://docs.pytorch.org/tutorials/recipes/distributed_checkpoint_recipe.html"""
import os
import shutil
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

CLASSES, DIM, ACCUM = 8, 16, 2

class AppState(Stateful):
    """Lets DCP call state_dict() and load_state_dict() on model and optimizer together."""

    def __init__(self, model, optimizer=None):
        self.model = model
        self.optimizer = optimizer

    def state_dict(self):
        model_sd, optim_sd = get_state_dict(self.model, self.optimizer)
        return {"model": model_sd, "optim": optim_sd}

    def load_state_dict(self, state_dict):
        set_state_dict(self.model, self.optimizer, model_state_dict=state_dict["model"], optim_state_dict=state_dict["optim"])

def build(mesh):
    torch.manual_seed(1234)  # alike on all ranks, each keeps its shard
    model = nn.Sequential(
        nn.Sequential(nn.Linear(DIM, 64), nn.ReLU()),
        nn.Sequential(nn.Linear(64, 64), nn.ReLU()),
        nn.Linear(64, CLASSES),
    ).cuda()
    for block in model:
        fully_shard(block, mesh=mesh, reshard_after_forward=True)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.Adam(model.parameters(), lr=3e-3)

def batch(gen):
    x = torch.randn(16, DIM, generator=gen)
    return x.cuda(non_blocking=True), x[:, :CLASSES].argmax(1).cuda(non_blocking=True)

def train(model, optim, steps, gen):
    for _ in range(steps):
        total = torch.zeros((), device="cuda")
        for micro in range(ACCUM):
            last = micro == ACCUM - 1
            model.set_requires_gradient_sync(last)  # reduce-scatter at the last micro-batch only
            x, y = batch(gen)
            loss = F.cross_entropy(model(x), y) / ACCUM
            loss.backward()
            total += loss.detach()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optim.step()
        optim.zero_grad()
    dist.all_reduce(total, op=dist.ReduceOp.AVG)
    return total.item()

def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("dp",))
    gen = torch.Generator().manual_seed(dist.get_rank())
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    ckpt = os.path.join(folder[0], "step12")

    model, optim = build(mesh)
    first = train(model, optim, 12, gen)
    dcp.save({"app": AppState(model, optim)}, checkpoint_id=ckpt)  # every rank writes its own shards

    model, optim = build(mesh)  # a restarted job
    dcp.load({"app": AppState(model, optim)}, checkpoint_id=ckpt)
    second = train(model, optim, 12, gen)
    if dist.get_rank() == 0:
        print(f"loss {first:.4f} -> {second:.4f}")
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(folder[0])
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
