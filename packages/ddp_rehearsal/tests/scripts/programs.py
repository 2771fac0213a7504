"""Ranks as programs that the script starts: each sees one GPU alone, as its own number 0."""

import os
import subprocess
import sys

if "PART" not in os.environ:
    from socket import create_server

    with create_server(("localhost", 0)) as found:
        port = str(found.getsockname()[1])
    started = []
    for part in range(2):
        chosen = {"PART": str(part), "CUDA_VISIBLE_DEVICES": str(part), "MASTER_ADDR": "localhost", "MASTER_PORT": port}
        started.append(subprocess.Popen([sys.executable, __file__], env=os.environ | chosen))
    sys.exit(max(program.wait() for program in started))

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl", rank=int(os.environ["PART"]), world_size=2)
assert torch.cuda.device_count() == 1
net = DistributedDataParallel(nn.Linear(6, 2).cuda(), device_ids=[0])
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
of_rank = torch.Generator().manual_seed(dist.get_rank())
for _ in range(6):
    X = torch.randn(8, 6, generator=of_rank).cuda()
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(X), (X[:, 0] > 0).long()).backward()
    optimizer.step()
dist.destroy_process_group()
