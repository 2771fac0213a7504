"""Style: parameter server on rank 0, workers send gradients and receive weights by dist.send and dist.recv; after https://docs.pytorch.org/tutorials/intermediate/dist_tuto.html (point-to-point part)"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

STEPS = 25


def build_model():
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3)).cuda()


def flat_grads(model):
    return torch.cat([p.grad.reshape(-1) for p in model.parameters()])


def server(world_size):
    """Holds the weights and the optimizer; trains on no data itself."""
    torch.manual_seed(0)
    model = build_model()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    workers = range(1, world_size)
    for w in workers:
        dist.send(parameters_to_vector(model.parameters()).detach(), dst=w)
    buffer = torch.empty(sum(p.numel() for p in model.parameters()), device="cuda")
    losses = torch.empty(1, device="cuda")
    for step in range(STEPS):
        total = torch.zeros_like(buffer)
        mean_loss = 0.0
        for w in workers:  # synchronous: all workers, in order of rank
            dist.recv(buffer, src=w)
            dist.recv(losses, src=w)
            total += buffer
            mean_loss += losses.item() / len(workers)
        total /= len(workers)
        offset = 0
        for p in model.parameters():
            p.grad = total[offset:offset + p.numel()].view_as(p).clone()
            offset += p.numel()
        optimizer.step()
        weights = parameters_to_vector(model.parameters()).detach()
        for w in workers:
            dist.send(weights, dst=w)
        if step % 5 == 0:
            print(f"step {step}: mean worker loss {mean_loss:.4f}")
    return model


def worker(rank):
    model = build_model()
    weights = torch.empty(sum(p.numel() for p in model.parameters()), device="cuda")
    dist.recv(weights, src=0)
    vector_to_parameters(weights.clone(), model.parameters())
    gen = torch.Generator().manual_seed(rank)  # every worker has its own data
    for _ in range(STEPS):
        x = torch.randn(32, 8, generator=gen)
        y = x[:, :3].argmax(1).cuda()
        model.zero_grad()
        loss = nn.functional.cross_entropy(model(x.cuda()), y)
        loss.backward()
        dist.send(flat_grads(model), dst=0)
        dist.send(loss.detach().reshape(1), dst=0)
        dist.recv(weights, src=0)
        vector_to_parameters(weights.clone(), model.parameters())
    return model


if __name__ == "__main__":
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    assert world_size >= 2, "one server and at least one worker"
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    model = server(world_size) if rank == 0 else worker(rank)
    checksum = parameters_to_vector(model.parameters()).detach().double().sum().reshape(1)
    sums = [torch.zeros_like(checksum) for _ in range(world_size)]
    dist.all_gather(sums, checksum)
    assert all(torch.equal(s, sums[0]) for s in sums)  # workers hold the server's last weights
    dist.destroy_process_group()
