"""Ranks as processes that the script starts and waits for; gradients and first weights are averaged by hand."""

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


def run(rank, size, address):
    dist.init_process_group("nccl", init_method=address, rank=rank, world_size=size)
    device = torch.device("cuda", rank)
    net = nn.Linear(4, 2).to(device)
    for param in net.parameters():
        dist.broadcast(param.data, 0)
    of_rank = torch.Generator().manual_seed(10 + rank)
    for _ in range(7):
        X = torch.randn(8, 4, generator=of_rank).to(device)
        net.zero_grad()
        nn.functional.cross_entropy(net(X), (X[:, 0] > 0).long()).backward()
        with torch.no_grad():
            for param in net.parameters():
                dist.all_reduce(param.grad, op=dist.ReduceOp.AVG)
                param -= 0.3 * param.grad
    dist.destroy_process_group()


if __name__ == "__main__":
    import tempfile

    mp.set_start_method("spawn")
    with tempfile.TemporaryDirectory() as folder:
        size = torch.cuda.device_count()
        started = [mp.Process(target=run, args=(rank, size, f"file://{folder}/meet")) for rank in range(size)]
        for process in started:
            process.start()
        for process in started:
            process.join()
