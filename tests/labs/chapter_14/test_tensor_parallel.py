"""Tensor and sequence parallelism by hand: the network of one device, and that of PyTorch's parallelize_module."""

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from d2lite import Workers
from d2lite.labs.chapter_14 import (
    ColumnParallel,
    RowParallel,
    VocabularyParallel,
    index_in_part,
    part_along,
    shard_network,
    shard_sequence,
    shard_vocabulary,
    sharded_cross_entropy,
    tensor_step,
)
from d2lite.profiling import recorded_collectives
from d2lite.transformer import Transformer
from tests.ranks import NEEDS_RANKS, pool_of

pytestmark = [
    NEEDS_RANKS,
    pytest.mark.filterwarnings("ignore:[34] ranks share"),
]


pool = pool_of(2, 3, 4)


def make_net():
    # on 3 ranks heads (2, 1, 1), the MLP's 160 numbers and 13 characters do not divide
    return Transformer(width=40, num_blocks=2, num_heads=4, context=12, num_characters=13).double()


def batches(n):
    generator = torch.Generator().manual_seed(1)
    for _ in range(4):
        yield tuple(torch.randint(0, 13, (2, n, 12), generator=generator))


def alone(n):
    net, losses = make_net(), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for X, y in batches(n):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(X).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return net, torch.stack(losses)


def on_rank(n, cut):
    right, losses = alone(n)
    net, mine = cut(make_net()), []
    momenta = [torch.zeros_like(param) for param in net.parameters()]
    for X, y in batches(n):
        mine.append(tensor_step(net, momenta, X, y, 0.1))
    moved = max((p - q).abs().max().item() for p, q in zip(right.parameters(), make_net().parameters(), strict=True))
    expected = cut(right).parameters()
    apart = max((p - q).abs().max().item() for p, q in zip(net.parameters(), expected, strict=True))
    return apart, (torch.stack(mine) - losses).abs().max().item(), moved


@pytest.mark.parametrize("cut", [shard_network, shard_sequence])
@pytest.mark.parametrize("n", [4, 1])
def test_k_ranks_train_the_network_of_one(pool, n, cut):
    for apart, losses_apart, moved in pool.run(on_rank, n, cut):
        assert apart < 1e-9 and losses_apart < 1e-9
        assert moved > 1e-2  # it has trained


def forgotten_sum():
    """Sequence parallelism whose partial gradients are not summed."""
    right, _ = alone(2)
    net = shard_sequence(make_net())
    partial, net.partial = [id(param) for param in net.partial], []
    momenta = [torch.zeros_like(param) for param in net.parameters()]
    for X, y in batches(2):
        tensor_step(net, momenta, X, y, 0.1)
    expected = shard_sequence(right).parameters()
    pairs = list(zip(net.parameters(), expected, strict=True))
    return max((p - q).abs().max().item() for p, q in pairs if id(p) in partial)


def test_what_is_used_on_some_places_has_a_partial_gradient(pool):
    assert min(pool.run(forgotten_sum)) > 1e-3


def against_the_library():
    """How far logits and gradients of our cut are from PyTorch's, and what PyTorch's calls in its backward pass."""
    k, X = dist.get_world_size(), next(iter(batches(3)))[0]
    ours, theirs = shard_network(make_net()), make_net()
    plan = {f"attention.{name}": ColwiseParallel() for name in ("query", "key", "value")}
    plan |= {"attention.out": RowwiseParallel(), "mlp.up": ColwiseParallel(), "mlp.down": RowwiseParallel()}
    for block in theirs.blocks:
        parallelize_module(block, init_device_mesh("cpu", (k,)), plan)
        block.attention.num_heads //= k
    logits = theirs(X)
    with recorded_collectives() as calls:
        logits.square().mean().backward()
    mine = ours(X)  # of this rank's characters
    (mine.square().sum() / logits.numel()).backward()
    apart = [(mine - part_along(logits, -1)).abs().max().item()]
    for name, param in ours.blocks.named_parameters():
        grad = theirs.blocks.get_parameter(name).grad
        apart.append((param.grad - (grad.to_local() if hasattr(grad, "to_local") else grad)).abs().max().item())
    return max(apart), [call.name for call in calls], len(ours.blocks)


def test_layers_are_those_of_parallelize_module():
    for k in (2, 4):
        with Workers(k, timeout_s=30) as workers:
            workers.backend = "gloo"
            for apart, names, num_blocks in workers.run(against_the_library):
                assert apart < 1e-9
                assert names == 4 * num_blocks * ["all_reduce"]  # query, key, value and up; with f they would be two


def layers_on_rank():
    torch.manual_seed(0)
    linear = torch.nn.Linear(6, 9).double()
    X = torch.randn(2, 6, dtype=torch.float64)
    whole = linear(X)
    column, row = ColumnParallel(linear), RowParallel(linear)
    return (
        (column(X) - part_along(whole, 1)).abs().max().item(),
        (row(part_along(X, 1)) - whole).abs().max().item(),
        column.weight.data_ptr() != linear.weight.data_ptr() and row.bias.data_ptr() != linear.bias.data_ptr(),
    )


def test_a_layer_is_a_part_of_the_whole_and_shares_no_memory(pool):
    for column, row, is_copy in pool.run(layers_on_rank):
        assert column < 1e-12 and row < 1e-12 and is_copy


def loss_on_rank():
    torch.manual_seed(0)
    logits = (1000 * torch.randn(3, 5, 13, dtype=torch.float64)).requires_grad_()
    assert logits.exp().isinf().any()  # without taking the largest away
    y = torch.randint(0, 13, (3, 5))
    mine = part_along(logits, -1).requires_grad_()
    first = int(part_along(torch.arange(13), 0)[0])
    loss, right = sharded_cross_entropy(mine, y, first), F.cross_entropy(logits.flatten(0, 1), y.flatten())
    loss.backward()
    right.backward()
    return (loss - right).abs().item(), (mine.grad - part_along(logits.grad, -1)).abs().max().item()


def test_the_loss_on_parts_of_the_logits_is_cross_entropy(pool):
    for loss, gradient in pool.run(loss_on_rank):
        assert loss < 1e-9 and gradient < 1e-9


def masked_loss_on_rank():
    """A character that never comes has the logit -inf: with it a rank has no right answer to look up."""
    logits, y = torch.zeros(1, 2, 13, dtype=torch.float64), torch.tensor([[0, 12]])
    logits[..., [4, 5, 7, 10]] = -torch.inf  # the first characters of ranks, for 2, 3 and 4 of them, are among them
    first = int(part_along(torch.arange(13), 0)[0])
    loss = sharded_cross_entropy(part_along(logits, -1), y, first)
    return (loss - F.cross_entropy(logits.flatten(0, 1), y.flatten())).abs().item()


def test_the_loss_takes_logits_of_minus_infinity(pool):
    assert max(pool.run(masked_loss_on_rank)) < 1e-9


def few_characters():
    try:
        shard_network(Transformer(width=8, num_blocks=1, num_characters=1))
    except ValueError as error:
        return str(error)


def test_more_ranks_than_characters(pool):
    k = len(pool.run(dist.get_rank))
    assert set(pool.run(few_characters)) == {f"num_characters: expected at least {k}, one for each rank, got 1."}


def embedding_on_rank():
    net, tokens = make_net(), next(iter(batches(3)))[0]
    embedding = VocabularyParallel(net.embedding.character)
    whole = net.embedding.character(tokens)
    rows = len(embedding.weight)
    shard_vocabulary(net)
    return (embedding(tokens) - whole).abs().max().item(), rows, net(tokens).shape[-1]


def test_each_rank_has_its_rows_of_the_vocabulary(pool):
    found = pool.run(embedding_on_rank)
    assert max(apart for apart, _, _ in found) < 1e-12
    assert sum(rows for _, rows, _ in found) == sum(logits for _, _, logits in found) == 13


def test_index_in_part():
    index, is_mine = index_in_part(torch.tensor([3, 4, 6, 7]), first=4, n=3)
    assert index.tolist() == [0, 0, 2, 0] and is_mine.tolist() == [False, True, True, False]


def too_many():
    try:
        shard_network(Transformer(width=6, num_blocks=1, num_heads=1))
    except ValueError as error:
        return str(error)


def test_more_ranks_than_heads(pool):
    k = len(pool.run(dist.get_rank))
    assert set(pool.run(too_many)) == {f"num_heads: expected at least {k}, one for each rank, got 1."}
