"""Style: basic DDP tutorial with mp.spawn and checkpoint demo; modelled on https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html"""
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.optim as optim
from torch.nn.parallel import DistributedDataParallel as DDP


def setup(rank, world_size):
    os.environ['MASTER_ADDR'] = 'localhost'
    os.environ['MASTER_PORT'] = '12355'
    torch.cuda.set_device(rank)
    # initialize the process group
    dist.init_process_group("nccl", rank=rank, world_size=world_size)


def cleanup():
    dist.destroy_process_group()


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(10, 10)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(10, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def demo_checkpoint(rank, world_size, checkpoint_path):
    print(f"Running DDP checkpoint example on rank {rank}.")
    setup(rank, world_size)

    model = ToyModel().to(rank)
    ddp_model = DDP(model, device_ids=[rank])

    if rank == 0:
        # All processes see the same parameters, so saving in one process is enough.
        torch.save(ddp_model.state_dict(), checkpoint_path)
    # The others must not read before process 0 has written.
    dist.barrier()
    map_location = {'cuda:%d' % 0: 'cuda:%d' % rank}
    ddp_model.load_state_dict(torch.load(checkpoint_path, map_location=map_location, weights_only=True))

    loss_fn = nn.MSELoss()
    optimizer = optim.SGD(ddp_model.parameters(), lr=0.001)
    torch.manual_seed(100 + rank)  # every process draws other inputs
    for _ in range(25):
        optimizer.zero_grad()
        outputs = ddp_model(torch.randn(20, 10))
        labels = torch.randn(20, 5).to(rank)
        loss_fn(outputs, labels).backward()
        optimizer.step()

    # All have loaded long ago: backward() above is a synchronisation point.
    if rank == 0:
        os.remove(checkpoint_path)
    cleanup()
    print(f"Finished running DDP checkpoint example on rank {rank}.")


def run_demo(demo_fn, world_size):
    path = os.path.join(tempfile.mkdtemp(), "model.checkpoint")
    mp.spawn(demo_fn, args=(world_size, path), nprocs=world_size, join=True)
    os.rmdir(os.path.dirname(path))


if __name__ == "__main__":
    n_gpus = torch.cuda.device_count()
    if n_gpus < 2:
        sys.exit(f"Requires at least 2 GPUs to run, but got {n_gpus}")
    run_demo(demo_checkpoint, n_gpus)
