"""Style: Join context for uneven inputs with DDP and a Joinable counter; modelled on https://docs.pytorch.org/tutorials/advanced/generic_join.html"""
import os

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join, Joinable, JoinHook
from torch.nn.parallel import DistributedDataParallel as DDP

BASE_INPUTS = 24


class CounterJoinHook(JoinHook):
    def __init__(self, counter):
        self.counter = counter

    def main_hook(self):
        """Shadows the all-reduce of the ranks that go on, with a zero."""
        dist.all_reduce(torch.zeros(1, device=self.counter.device))


class Counter(Joinable):
    """Counts the batches of all ranks while they come."""

    def __init__(self, device):
        super().__init__()
        self.device = device
        self.total = torch.zeros(1, device=device)

    def __call__(self):
        Join.notify_join_context(self)
        t = torch.ones(1, device=self.device)
        dist.all_reduce(t)
        self.total += t

    def join_hook(self, **kwargs):
        return CounterJoinHook(self)

    @property
    def join_device(self):
        return self.device

    @property
    def join_process_group(self):
        return dist.group.WORLD


def main():
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group(backend="nccl")
    device = torch.device("cuda", local_rank)

    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).to(device)
    model = DDP(net, device_ids=[local_rank])
    optim = torch.optim.SGD(model.parameters(), lr=0.02)
    counter = Counter(device)

    # Rank 1 gets one more input than rank 0, rank 2 two more ...
    g = torch.Generator().manual_seed(50 + rank)
    inputs = [torch.randn(8, 6, generator=g) for _ in range(BASE_INPUTS + rank)]
    num_inputs = 0
    with Join([counter, model], divide_by_initial_world_size=False):
        for x in inputs:
            counter()
            num_inputs += 1
            x = x.to(device)
            loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
            optim.zero_grad()
            loss.backward()
            optim.step()
    print(f"Rank {rank} has exhausted all {num_inputs} of its inputs!")

    # After the context the replicas are equal again, and plain collectives are safe.
    everyone = torch.tensor(num_inputs, device=device)
    dist.all_reduce(everyone)
    assert everyone.item() == world_size * BASE_INPUTS + world_size * (world_size - 1) // 2
    if rank == world_size - 1:  # the rank with the most inputs has seen all counts
        assert int(counter.total) == everyone.item()
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    reference = flat.clone()
    dist.broadcast(reference, src=0)
    assert torch.equal(flat, reference), "replicas differ after Join"
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
