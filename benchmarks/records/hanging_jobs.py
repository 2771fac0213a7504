"""Training loops in which one rank can have a fault, for `benchmarks.records.hang_diagnosis`: ordinary code on gloo."""

import os
import random
import signal
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn

__all__ = ["LOOPS", "Plan", "reduce_all"]

LONG_S = 600


@dataclass(frozen=True)
class Plan:
    """A job: the loop, its ranks, its numbers, and the fault of rank `rank` in step `step`; fault "" is a healthy job.

    `noise_s` bounds what each rank sleeps in each step, and `counts` are minibatches per epoch of each rank.
    """

    loop: str
    world_size: int
    fault: str = ""
    rank: int = 0
    step: int = 2
    steps: int = 5
    epochs: int = 1
    size: int = 100
    noise_s: float = 0.0
    slow_s: float = 0.0
    seed: int = 0
    counts: tuple[int, ...] = field(default=())

    def here(self, fault, step=None):
        """Return whether this rank has that fault now."""
        return (self.fault, self.rank) == (fault, dist.get_rank()) and step in (None, self.step)

    def minibatches(self, epoch):
        """Yield the numbers of this rank's minibatches in an epoch, counted from the beginning of the job."""
        rank = dist.get_rank()
        noise = random.Random(self.seed * 100 + epoch * 10 + rank)
        num = self.counts[rank] if self.counts else self.steps
        num += self.here("one minibatch more") - self.here("one minibatch fewer")
        for i in range(num):
            time.sleep(noise.uniform(0, self.noise_s) + self.slow_s)
            step = epoch * self.steps + i
            if self.here("skips a minibatch", step):
                continue
            if self.here("killed", step):
                os.kill(os.getpid(), signal.SIGKILL)
            if self.here("sleeps", step):
                time.sleep(LONG_S)
            if self.here("loops", step):
                look_for_a_free_port()
            if self.here("receives from nobody", step):
                dist.recv(torch.ones(self.size), src=(rank + 1) % self.world_size)
            if self.here("sends to nobody", step):
                dist.send(torch.ones(1_000_000), dst=(rank + 1) % self.world_size)
            yield step


class Early(Exception):
    """Ends a job on one rank."""


def look_for_a_free_port():
    while True:
        sum(range(1000))


def evaluate(plan):
    right = torch.tensor([7.0, 10.0])
    dist.all_reduce(right)
    return right


def one_all_reduce(plan):
    """One all-reduce of all gradients in each step."""
    for epoch in range(plan.epochs):
        for step in plan.minibatches(epoch):
            gradient = torch.ones(plan.size)
            if plan.here("loss is not a number", step):
                continue
            if plan.here("returns early", step):
                return
            if plan.here("wrong size", step):
                gradient = gradient[:-3]
            if plan.here("wrong type", step):
                gradient = gradient.double()
            if plan.here("wrong size in a line of its own", step):
                dist.all_reduce(gradient[:-1])
            elif not plan.here("leaves out a call", step):
                dist.all_reduce(gradient)
            if plan.here("an additional call", step):
                dist.all_reduce(torch.ones(1))
        evaluate(plan)


def tensor_by_tensor(plan):
    """An all-reduce for each parameter, from one line; the loss in every second step."""
    sizes = [plan.size, 10, plan.size * 2, 5]
    for epoch in range(plan.epochs):
        for step in plan.minibatches(epoch):
            gradients = [torch.ones(n) for n in sizes]
            if plan.here("swaps two, one line", step):
                gradients[0], gradients[1] = gradients[1], gradients[0]
            if plan.here("leaves out a call", step):
                del gradients[1]
            if plan.here("calls one twice", step):
                gradients.insert(1, gradients[0].clone())
            if plan.here("wrong size", step):
                gradients[2] = gradients[2][1:]
            if plan.here("wrong type", step):
                gradients[3] = gradients[3].double()
            try:
                for i, gradient in enumerate(gradients):
                    if i == 2 and plan.here("catches an error", step):
                        raise ValueError("a bad image")
                    dist.all_reduce(gradient)
            except ValueError:
                continue
            if step % 2 == 1 and not plan.here("leaves out the rare call", step - step % 2 + plan.step % 2):
                dist.all_reduce(torch.ones(1))
        if not plan.here("leaves the evaluation out"):
            evaluate(plan)


def three_lines(plan):
    """Three all-reduces of equal sizes, from three lines, and a barrier."""
    for epoch in range(plan.epochs):
        for step in plan.minibatches(epoch):
            a, b, c = (torch.ones(plan.size) for _ in range(3))
            if not plan.here("leaves out a call", step):
                dist.all_reduce(a)
            if plan.here("goes on to the next step", step):
                continue
            if plan.here("leaves the loop in the middle", step):
                break
            dist.all_reduce(b)
            if plan.here("an additional call", step):
                dist.all_reduce(torch.ones(plan.size))
            dist.all_reduce(c)
            if plan.here("returns early", step):
                return
            dist.barrier()
        evaluate(plan)


def helpers(plan):
    """Functions for the parts of a step; a learning rate from rank 0, a barrier after saving."""
    dist.broadcast(torch.ones(plan.size), src=0)
    for epoch in range(plan.epochs):
        lr = torch.tensor([0.1])
        if dist.get_rank() == 0:
            dist.broadcast(lr, src=0)
        else:
            dist.broadcast(lr, src=1 if plan.here("wrong source") else 0)
        for step in plan.minibatches(epoch):
            reduce_all(plan, step)
            if plan.here("an additional call", step):
                log(plan)
        if dist.get_rank() == 0 and plan.here("only rank 0 evaluates"):
            evaluate(plan)
        evaluate(plan)
        dist.barrier()


def reduce_all(plan, step):
    weights, bias = torch.ones(plan.size), torch.ones(10)
    if plan.here("swaps two", step):
        dist.all_reduce(bias)
        dist.all_reduce(weights)
        return
    try:
        if plan.here("catches an error", step):
            raise ValueError("a bad image")
        if not plan.here("leaves out a call", step):
            dist.all_reduce(weights)
        if plan.here("catches a late error", step):
            raise ValueError("a bad image")
        dist.all_reduce(bias[1:] if plan.here("wrong size", step) else bias)
    except ValueError:
        return


def log(plan):
    dist.all_reduce(torch.ones(1))


def mixed(plan):
    """Broadcast, all-gather, reduce and all-reduce."""
    rank, n = dist.get_rank(), plan.world_size
    for epoch in range(plan.epochs):
        for step in plan.minibatches(epoch):
            weights = torch.ones(plan.size)
            dist.broadcast(weights, src=(rank + 1) % n if plan.here("wrong source", step) else 0)
            if not plan.here("leaves out a call", step):
                dist.all_gather([torch.ones(4) for _ in range(n)], torch.ones(4))
            dst = 1 if plan.here("wrong destination", step) else 0
            dist.reduce(weights, dst=dst)
            if plan.here("loss is not a number", step):
                continue
            flags = torch.ones(2, dtype=torch.float64 if plan.here("wrong type", step) else torch.float32)
            dist.all_reduce(flags)
        if rank == 0 and plan.here("only rank 0 evaluates"):
            evaluate(plan)
        evaluate(plan)


def experts(plan):
    """An all-to-all with splits in each step, and an all-reduce."""
    n = plan.world_size
    for epoch in range(plan.epochs):
        for step in plan.minibatches(epoch):
            splits = [3] * n
            if plan.here("wrong splits", step):
                splits = [3 * n - 1 - (n - 2)] + [1] * (n - 1)
            sent, received = torch.ones(3 * n), torch.ones(3 * n)
            if not plan.here("leaves out a call", step):
                dist.all_to_all_single(received, sent, [3] * n, splits)
            if plan.here("catches a late error", step):
                continue
            dist.all_reduce(torch.ones(plan.size))
        evaluate(plan)


def two_levels(plan):
    """An all-reduce in each host's group, and one of all ranks. Hosts have two ranks, the last one may have one."""
    n, rank = plan.world_size, dist.get_rank()
    hosts = [dist.new_group(list(range(i, min(i + 2, n)))) for i in range(0, n, 2)]
    mine = hosts[rank // 2]
    for epoch in range(plan.epochs):
        for step in plan.minibatches(epoch):
            gradient = torch.ones(plan.size)
            if plan.here("swaps two groups", step):
                dist.all_reduce(gradient)
                dist.all_reduce(gradient, group=mine)
                continue
            if not plan.here("leaves out a call in a sub-group", step):
                dist.all_reduce(gradient, group=mine)
            if plan.here("an additional call in a sub-group", step):
                dist.all_reduce(torch.ones(1), group=mine)
            if not plan.here("leaves out a call", step):
                dist.all_reduce(gradient, group=mine if plan.here("wrong group", step) else None)
        evaluate(plan)


def pipeline(plan):
    """Activations go from rank to rank, gradients come back; then an all-reduce of the loss."""
    n, rank = plan.world_size, dist.get_rank()
    for epoch in range(plan.epochs):
        for step in plan.minibatches(epoch):
            X = torch.ones(plan.size)
            if rank > 0 and not plan.here("leaves out a receive", step):
                dist.recv(X, src=rank - 1)
            if rank < n - 1 and not plan.here("leaves out a send", step):
                dist.send(X, dst=rank + 1)
            if rank < n - 1:
                dist.recv(X, src=rank + 1)
            if rank > 0:
                dist.send(X, dst=rank - 1)
            if not plan.here("leaves out a call", step):
                dist.all_reduce(torch.ones(1))


def overlapped(plan):
    """Two all-reduces that are begun, and waited for later."""
    for epoch in range(plan.epochs):
        for step in plan.minibatches(epoch):
            first = dist.all_reduce(torch.ones(plan.size), async_op=True)
            if plan.here("leaves out a call", step):
                first.wait()
                continue
            second = dist.all_reduce(torch.ones(20), async_op=True)
            if not plan.here("forgets to wait", step):
                first.wait()
                second.wait()
        evaluate(plan)


def ddp(plan):
    """PyTorch's DistributedDataParallel, and an evaluation."""
    torch.manual_seed(0)
    net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(plan.epochs):
        for step in plan.minibatches(epoch):
            if plan.here("leaves out a call", step):
                continue
            optimizer.zero_grad()
            loss = net(torch.ones(4, 8)).square().mean()
            if plan.here("an additional call", step):
                dist.all_reduce(loss.detach())
            if plan.here("loss is not a number", step):
                continue
            loss.backward()
            optimizer.step()
            if plan.here("returns early", step):
                return
        evaluate(plan)


LOOPS = {
    f.__name__: f
    for f in (
        one_all_reduce, tensor_by_tensor, three_lines, helpers, mixed, experts, two_levels, pipeline, overlapped, ddp,
    )
}  # fmt: skip
