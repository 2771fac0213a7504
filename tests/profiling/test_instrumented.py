import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from d2lite import LeNet, lenet_params, replicate, train_batch, try_gpus
from d2lite.labs.chapter_01.model_parallel import ModelParallel
from d2lite.labs.chapter_01.stage_recording import record_stages
from d2lite.profiling.critical_path import critical_path
from d2lite.profiling.instrumented import record_ddp, record_train_batch
from d2lite.profiling.recorder import Recorder
from d2lite.profiling.step_times import merged_step, step_times
from d2lite.workers import Workers
from tests.ranks import NEEDS_RANKS, pool_of

pool = pool_of(2)


@pytest.mark.parametrize("k", (1, 2, 3))
def test_the_recorded_step_is_the_step_of_train_batch(batch, k):
    devices = try_gpus(k)
    theirs, ours = (replicate([p.double() for p in lenet_params()], devices) for _ in range(2))
    recorder = Recorder(0, devices)
    for seed in range(4):
        X, y = batch(10, torch.float64, seed)
        train_batch(X, y, theirs, devices, lr=0.1)
        record_train_batch(X, y, ours, devices, 0.1, recorder)
    for params, expected in zip(ours, theirs, strict=True):
        assert all(torch.equal(p, q) for p, q in zip(params, expected, strict=True))
    assert len(recorder.steps) == 4
    for events in recorder.steps:
        for i in range(k):
            kinds = [event.kind for event in events if event.rank == i]
            assert {"data", "forward", "backward", "update"} <= set(kinds)
            sent = [event.n_bytes for event in events if event.rank == i and event.kind == "all_reduce"]
            assert sent == ([8 * sum(p.numel() for p in lenet_params())] if k > 1 else [])
        assert all(event.start_s <= event.end_s for event in events)
    assert critical_path(merged_step([recorder.steps]))[-1].kind == "update"


def test_stages_compute_one_after_the_other_and_keep_no_hook(batch):
    X, y = batch(6)
    first = nn.Sequential(nn.Flatten(), nn.Linear(784, 30))
    net = ModelParallel([first, nn.Linear(30, 20), nn.Linear(20, 10)], try_gpus(3))
    events = record_stages(net, X, y, num_steps=2)
    assert [(event.kind, event.rank) for event in events] == [
        *(("forward", i) for i in (0, 1, 2)),
        *(("backward", i) for i in (2, 1, 0)),
    ]
    assert events[0].start_s == 0
    for first, second in zip(events, events[1:], strict=False):
        assert first.start_s <= first.end_s <= second.start_s
    assert not any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in net.modules())


def on_ranks(bucket_cap_mb):
    """Record four steps of LeNet, and take the same steps without a recorder; return the recorded and both networks."""
    nets = []

    def make_net():
        nets.append(LeNet())
        return nets[-1]

    def minibatches():
        generator = torch.Generator().manual_seed(0)
        while True:
            X = torch.rand(8, 1, 28, 28, generator=generator)
            yield X, torch.randint(0, 10, (8,), generator=generator)

    batches = minibatches()
    recorded = record_ddp(make_net, lambda: next(batches), 4, 0.1, bucket_cap_mb)
    plain, batches = DistributedDataParallel(make_net(), bucket_cap_mb=bucket_cap_mb), minibatches()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    for _ in range(4):
        X, y = (part.tensor_split(dist.get_world_size())[dist.get_rank()] for part in next(batches))
        F.cross_entropy(plain(X), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return recorded, [[p.detach() for p in net.parameters()] for net in nets]


@NEEDS_RANKS
def test_each_recorded_step_begins_without_the_gradients_of_the_step_before(pool):
    for _, (ours, plain) in pool.run(on_ranks, 25):
        assert all(torch.allclose(p, q, atol=1e-7) for p, q in zip(ours, plain, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("k", "bucket_cap_mb", "num_buckets"), ((1, 25, 1), (2, 25, 1), (2, 0.1, 2)))
def test_the_recorded_step_is_that_of_ddp(k, bucket_cap_mb, num_buckets):
    with Workers(k, timeout_s=30) as workers:
        results = workers.run(on_ranks, bucket_cap_mb)
    for _, (ours, plain) in results:
        assert all(torch.allclose(p, q, atol=1e-7) for p, q in zip(ours, plain, strict=True))
    recorded = [steps for steps, _ in results]
    events = merged_step(recorded)
    assert {event.rank for event in events} == set(range(k))
    n_bytes = 4 * sum(p.numel() for p in lenet_params())
    for rank in range(k):
        mine = [event for event in events if event.rank == rank]
        assert sum(event.n_bytes for event in mine) == (n_bytes if k > 1 else 0)
        assert len([e for e in mine if e.n_bytes]) == (num_buckets if k > 1 else 0)
        assert {"data", "forward", "backward", "update"} <= {event.kind for event in mine}
    assert critical_path(events)[-1].kind == "update"
    assert [times.rank for times in step_times(recorded, warm_up=1)] == list(range(k))
