"""What takes a group works on ranks that are not all ranks: pairs of four, in which a rank's place is not its rank."""

import pytest
import torch
import torch.nn.functional as F

from d2lite.labs.chapter_14 import shard_network, shard_sequence, summed, tensor_step
from d2lite.labs.chapter_15 import gpipe, my_stage, one_f_one_b, pipeline_step
from d2lite.transformer import Transformer
from tests.ranks import NEEDS_RANKS, my_pair, pool_of

pytestmark = [
    NEEDS_RANKS,
    pytest.mark.filterwarnings("ignore:4 ranks share"),
]


pool = pool_of(4)


def make_net(seed):
    return Transformer(width=24, num_blocks=1, context=8, num_characters=13, seed=seed).double()


def tensor_parallel(cut):
    group, pair, _ = my_pair()
    X, y = torch.randint(0, 13, (2, 3, 8), generator=torch.Generator().manual_seed(pair))
    net, right = cut(make_net(pair), group), make_net(pair)
    optimizer = torch.optim.SGD(right.parameters(), lr=0.1, momentum=0.9)
    momenta = [torch.zeros_like(param) for param in net.parameters()]
    for _ in range(2):
        tensor_step(net, momenta, X, y, 0.1, group)
        optimizer.zero_grad()
        F.cross_entropy(right(X).flatten(0, 1), y.flatten()).backward()
        optimizer.step()
    expected = cut(right, group).parameters()
    return max((p - q).abs().max().item() for p, q in zip(net.parameters(), expected, strict=True))


@pytest.mark.parametrize("cut", [shard_network, shard_sequence])
def test_tensor_parallel(pool, cut):
    assert max(pool.run(tensor_parallel, cut)) < 1e-9


def pipeline(schedule):
    group, pair, place = my_pair()
    X, y = torch.randint(0, 13, (2, 5, 8), generator=torch.Generator().manual_seed(pair))
    net, right = make_net(pair), make_net(pair)
    stage, theirs = my_stage(net, group, [1, 0]), my_stage(right, group, [1, 0])
    optimizer = torch.optim.SGD(right.parameters(), lr=0.1, momentum=0.9)
    momenta = [torch.zeros_like(param) for param in stage.parameters()]
    apart = []
    for _ in range(2):
        loss = pipeline_step(stage, momenta, X, y, 0.1, schedule, 3, group)
        optimizer.zero_grad()
        right_loss = F.cross_entropy(right(X).flatten(0, 1), y.flatten())
        right_loss.backward()
        optimizer.step()
        apart.append((loss - right_loss * place).abs().item())
    pairs = zip(stage.parameters(), theirs.parameters(), strict=True)
    return max(*apart, *((p - q).abs().max().item() for p, q in pairs))


@pytest.mark.parametrize("schedule", [gpipe, one_f_one_b])
def test_pipeline(pool, schedule):
    assert max(pool.run(pipeline, schedule)) < 1e-9


def mixed_strides():
    group, pair, place = my_pair()
    X = torch.arange(6.0).view(2, 3)
    mine = X.T.contiguous().T if place else X  # the same numbers, in another order in memory
    return (summed(mine, group) - 2 * X).abs().max().item()


def test_a_sum_does_not_depend_on_the_order_in_memory(pool):
    assert max(pool.run(mixed_strides)) == 0
