"""ZeRO by hand against torch: DistributedDataParallel and SGD with momentum, in float64, on 2 and on 4 ranks."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

from d2lite.labs.chapter_13 import (
    all_gather_parts,
    backward_on_shard,
    bytes_on_rank,
    cut,
    my_part,
    plain_step,
    reduce_at_once,
    reduce_scatter_sum,
    shard_layers,
    whole_params,
    zero_1_step,
    zero_2_step,
    zero_3_step,
)
from d2lite.transformer import Transformer
from tests.ranks import NEEDS_RANKS, pool_of

pytestmark = [
    NEEDS_RANKS,
    pytest.mark.filterwarnings("ignore:4 ranks share"),
]
STEPS = {0: plain_step, 1: zero_1_step, 2: zero_2_step, 3: zero_3_step}


def make_net():
    return Transformer(width=20, num_blocks=2, num_heads=2, context=8, num_characters=13).double()  # sizes not of 4


def batches(n):
    generator = torch.Generator().manual_seed(1)
    for _ in range(4):
        yield tuple(torch.randint(0, 13, (2, n, 8), generator=generator))


def begin(stage):
    net = make_net()
    if stage == 2:
        for param in net.parameters():
            param.register_post_accumulate_grad_hook(reduce_at_once)
    if stage == 3:
        shard_layers([net.embedding, *net.blocks, net.head])
        return net, [torch.zeros_like(param.part) for param in net.parameters()]
    return net, [torch.zeros_like(my_part(param) if stage else param) for param in net.parameters()]


def by_hand(stage, n):
    net, momenta = begin(stage)
    losses = []
    for X, y in batches(n):
        loss = STEPS[stage](net, momenta, X, y, 0.1)
        dist.all_reduce(loss)
        losses.append(loss)
    return whole_params(net), torch.stack(losses)


def by_torch(n):
    net = DistributedDataParallel(make_net())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    k, rank = dist.get_world_size(), dist.get_rank()
    for X, y in batches(n):
        optimizer.zero_grad()
        shard, labels = X.tensor_split(k)[rank], y.tensor_split(k)[rank]
        loss = F.cross_entropy(net(shard).flatten(0, 1), labels.flatten(), reduction="sum") * k / y.numel()
        loss.backward()
        optimizer.step()
    return list(net.module.parameters())


def on_one_device(n):
    net, losses = make_net(), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for X, y in batches(n):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(X).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return list(net.parameters()), torch.stack(losses)


def on_rank(stage, n):
    params, losses = by_hand(stage, n)
    oracle = by_torch(n)
    one, one_losses = on_one_device(n)
    apart = [max((p - q).abs().max().item() for p, q in zip(params, other, strict=True)) for other in (oracle, one)]
    moved = max((p - q).abs().max().item() for p, q in zip(one, make_net().parameters(), strict=True))
    return apart, (losses - one_losses).abs().max().item(), moved


pool = pool_of(2, 4)


@pytest.mark.parametrize("stage", STEPS)
@pytest.mark.parametrize("n", [8, 3])  # even, and uneven: on four ranks one without an example
def test_each_stage_is_plain_data_parallelism(pool, stage, n):
    for apart, losses_apart, moved in pool.run(on_rank, stage, n):
        assert max(apart) < 1e-9 and losses_apart < 1e-9
        assert moved > 1e-2  # it has trained


def collectives_on_rank():
    rank, k = dist.get_rank(), dist.get_world_size()
    for shape in [(7,), (1,), (3, 5), ()]:
        tensor = torch.arange(1.0, 1 + torch.Size(shape).numel(), dtype=torch.float64).view(shape)
        before = (tensor * (rank + 1)).clone()
        total = reduce_scatter_sum(before)
        parts = cut(tensor)
        assert len(parts) == k and len({part.shape for part in parts}) == 1
        assert torch.equal(before, tensor * (rank + 1))
        factor = k * (k + 1) / 2
        assert torch.equal(total, my_part(tensor) * factor)
        assert torch.equal(all_gather_parts(total, tensor.shape), tensor * factor)
    return True


def test_parts_are_those_of_the_sum_and_join_to_the_whole(pool):
    assert all(pool.run(collectives_on_rank))


def held_on_rank(stage):
    net, momenta = begin(stage)
    X, y = next(batches(8))
    backward_on_shard(net, X, y)
    padded = sum(part.nbytes for part in map(my_part, make_net().parameters()))
    return bytes_on_rank(net, momenta), sum(p.nbytes for p in make_net().parameters()), padded


@pytest.mark.parametrize(("stage", "sharded"), [(0, 0), (1, 1), (2, 2), (3, 3)])
def test_each_stage_shards_one_kind_of_tensor_more(pool, stage, sharded):
    for held, whole, part in pool.run(held_on_rank, stage):
        kinds = ("optimizer", "gradients", "parameters")
        assert [held[kind] for kind in kinds] == [part if i < sharded else whole for i in range(3)]


def evaluation_on_rank():
    net, _ = begin(3)
    X, y = next(batches(8))
    with torch.no_grad():
        logits = net(X)
    assert all(p.untyped_storage().nbytes() == 0 for p in net.parameters())
    return torch.equal(logits, make_net()(X))


def test_a_sharded_network_evaluates_and_is_free_again(pool):
    assert all(pool.run(evaluation_on_rank))
