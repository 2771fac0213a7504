"""Each collective with a gradient against finite differences of the same function on one device, on 2 and 3 ranks."""

import pytest
import torch
import torch.distributed as dist

from d2lite.labs.chapter_14 import (
    PairedCollective,
    add_partials,
    copy_to_ranks,
    gather_places,
    part_along,
    scatter_places,
    split_places,
    summed,
)
from tests.ranks import NEEDS_RANKS, pool_of

pytestmark = [
    NEEDS_RANKS,
    pytest.mark.filterwarnings("ignore:3 ranks share"),
]


pool = pool_of(2, 3)


def weights(rank):
    generator = torch.Generator().manual_seed(10 + rank)
    return torch.randn(2, 6, 3, dtype=torch.float64, generator=generator)


def replicated():
    return weights(-1).requires_grad_()


def gradients_on_rank():
    """{function: how far result and gradient are from those of one device}"""
    rank, k = dist.get_rank(), dist.get_world_size()
    apart = {}

    def note(name, got, wanted):
        apart[name] = max((a - b).abs().max().item() for a, b in zip(got, wanted, strict=True))

    # f, and then a sum of what ranks with different weights make of X
    X, mine = replicated(), replicated()
    right = sum(X * weights(i) for i in range(k)).pow(3).sum()
    loss = add_partials(copy_to_ranks(mine) * weights(rank)).pow(3).sum()
    note("f and g", [loss, *torch.autograd.grad(loss, mine)], [right, *torch.autograd.grad(right, X)])
    # places: split, changed by a function of the place, gathered, and partial results scattered
    X, mine = replicated(), replicated()
    right = (sum(X.pow(2) * weights(i) for i in range(k)).sin() * weights(7)).sum()
    wide = gather_places(split_places(mine).pow(2))
    sine = scatter_places(wide * weights(rank)).sin()
    loss = add_partials((sine * part_along(weights(7), 1)).sum())
    note("places", [loss, *torch.autograd.grad(loss, mine)], [right, *torch.autograd.grad(right, X)])
    return apart


def test_k_ranks_have_the_loss_and_the_gradient_of_one(pool):
    for apart in pool.run(gradients_on_rank):
        assert set(apart) == {"f and g", "places"} and max(apart.values()) < 1e-9, apart


def without_f():
    X = replicated()
    loss = add_partials(X * weights(dist.get_rank())).pow(3).sum()
    right = replicated()
    true = sum(right * weights(i) for i in range(dist.get_world_size())).pow(3).sum()
    (got,), (wanted,) = torch.autograd.grad(loss, X), torch.autograd.grad(true, right)
    return (loss - true).abs().item(), (got - wanted).abs().max().item()


def test_without_f_the_loss_is_right_and_the_gradient_is_not(pool):
    for loss_apart, gradient_apart in pool.run(without_f):
        assert loss_apart < 1e-9 and gradient_apart > 0.1


def parts_on_rank():
    rows = torch.arange(10.0).view(10, 1)
    X = weights(0)
    before = X.clone()
    summed(X, None)
    return (
        part_along(rows, 0).flatten().tolist(),
        part_along(rows, 0, unit=5).flatten().tolist(),
        bool((X == before).all()),
    )


def test_parts_cover_the_tensor_and_keep_units_together(pool):
    parts, units, same = zip(*pool.run(parts_on_rank), strict=True)
    assert sum(parts, []) == sum(units, []) == list(range(10)) and all(same)
    sizes = list(map(len, parts))
    assert max(sizes) - min(sizes) <= 1 and {len(unit) % 5 for unit in units} == {0}


def other_strides_on_each_rank():
    """The sum of a matrix that is stored by rows on rank 0, and by columns on the others."""
    matrix = torch.arange(6.0).view(2, 3)
    total = summed(matrix if dist.get_rank() == 0 else matrix.t().contiguous().t(), None)
    return torch.equal(total, dist.get_world_size() * matrix)


def test_a_sum_is_right_where_ranks_store_their_tensors_in_other_orders(pool):
    assert all(pool.run(other_strides_on_each_rank))


def own_pair():
    """A pair of the learner's own: doubled in the forward pass, tripled in the backward pass."""
    X = torch.ones(3, requires_grad=True)
    Y = PairedCollective.apply(X, lambda X, group: 2 * X, lambda grad, group: 3 * grad, None)
    Y.sum().backward()
    return Y.tolist(), X.grad.tolist()


def test_collective_takes_any_pair(pool):
    assert pool.run(own_pair)[0] == ([2.0] * 3, [3.0] * 3)


def uneven(change):
    try:
        change(torch.zeros(1, 7, 2))
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("change", [scatter_places, split_places])
def test_places_must_divide(pool, change):
    k = len(pool.run(dist.get_rank))
    for message in pool.run(uneven, change):
        assert message == f"places (dimension 1): expected a multiple of {k} ranks, got 7. Pad or cut X."
