"""Real ranks: the same plans over gloo, and torch.distributed's own collectives as the oracle."""

import os
import warnings

import pytest
import torch
import torch.distributed as dist

from d2lite.collectives.on_devices import all_gather, all_reduce, broadcast, reduce, reduce_scatter
from d2lite.collectives.plans import ALGORITHMS
from d2lite.labs.chapter_04 import all_reduce_on_ranks
from d2lite.workers import Workers, WorkersError

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Workers needs Linux or macOS")
SHAPES = ((), (0,), (1,), (2, 3), (7,), (1000,))
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.complex64)
CASES = [(dtype, shape) for dtype in DTYPES for shape in SHAPES]


def by_value(fn):
    """Make a function travel by value, as one from a notebook's cell does."""
    fn.__module__ = "__main__"
    return fn


@by_value
def tensor_of(rank, dtype, shape):
    generator = torch.Generator().manual_seed(rank)
    return torch.randint(0, 8, shape, generator=generator).to(dtype)


@by_value
def by_gloo(worlds, cases):
    """{(world, case, collective): this rank's result} by torch.distributed, in groups of the first ranks."""
    found, rank = {}, dist.get_rank()
    for k in worlds:
        group = dist.new_group(list(range(k)))
        for dtype, shape in cases if rank < k else ():
            for name in ("sum", "max", "broadcast", "reduce", "all_gather"):
                tensor = tensor_of(rank, dtype, shape)
                if name == "broadcast":
                    dist.broadcast(tensor, src=k - 1, group=group)
                elif name == "reduce":
                    dist.reduce(tensor, dst=k - 1, group=group)
                elif name == "all_gather":
                    parts = [torch.empty_like(tensor) for _ in range(k)]
                    dist.all_gather(parts, tensor, group=group)
                    tensor = torch.cat([part.reshape(-1) for part in parts])
                elif name == "sum" or not dtype.is_complex:
                    dist.all_reduce(tensor, getattr(dist.ReduceOp, name.upper()), group=group)
                found[k, dtype, shape, name] = tensor
    return found


@by_value
def by_plans(cases, algorithms):
    found, rank = {}, dist.get_rank()
    for dtype, shape in cases:
        for algorithm in algorithms:
            for op in ("sum", "mean", "max"):
                whole = not (dtype.is_floating_point or dtype.is_complex)
                if op == "mean" and whole or op == "max" and dtype.is_complex:
                    continue
                tensor = tensor_of(rank, dtype, shape) / 3 if not whole else tensor_of(rank, dtype, shape)
                place = tensor.data_ptr()
                assert all_reduce_on_ranks(tensor, op, algorithm) is None and tensor.data_ptr() == place
                found[dtype, shape, algorithm, op] = tensor
    return found


@pytest.fixture(scope="module")
def pool():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # more ranks than cores: nothing is timed here
        pool = Workers(4, timeout_s=60)
    with pool:
        yield pool


def test_torch_distributed_has_the_same_results(pool):
    found = pool.run(by_gloo, (2, 3, 4), CASES)
    for k in (2, 3, 4):
        for dtype, shape in CASES:
            for algorithm in ALGORITHMS:
                for name in ("sum", "max", "broadcast", "reduce"):
                    tensors = [tensor_of(rank, dtype, shape) for rank in range(k)]
                    if name == "broadcast":
                        broadcast(tensors, k - 1, algorithm)
                    elif name == "reduce":
                        reduce(tensors, k - 1, "sum", algorithm)
                    elif name == "sum" or not dtype.is_complex:
                        all_reduce(tensors, name, algorithm)
                    for rank in range(k) if name != "reduce" else (k - 1,):
                        assert torch.equal(found[rank][k, dtype, shape, name], tensors[rank])
                # each rank's own chunk is what torch's all_gather takes from it
                parts = [tensor_of(rank, dtype, shape).reshape(-1) for rank in range(k)]
                tensors = [
                    torch.cat([part if i == rank else part + 1 for i, part in enumerate(parts)]) for rank in range(k)
                ]
                all_gather(tensors, algorithm)
                assert all(torch.equal(found[i][k, dtype, shape, "all_gather"], tensors[i]) for i in range(k))
                # and reduce-scatter is a part of the sum
                tensors = [tensor_of(rank, dtype, shape) for rank in range(k)]
                reduce_scatter(tensors, "sum", algorithm)
                for rank, tensor in enumerate(tensors):
                    total = found[rank][k, dtype, shape, "sum"].reshape(-1).tensor_split(k)[rank]
                    assert torch.equal(tensor.reshape(-1).tensor_split(k)[rank], total)


def test_ranks_execute_the_same_plans_bit_for_bit(pool):
    cases = [(torch.float32, (1000,)), (torch.bfloat16, (7,)), (torch.int64, (2, 3)), (torch.float64, ())]
    found = pool.run(by_plans, cases, ALGORITHMS)
    assert len(found[0]) == len(ALGORITHMS) * (3 * 3 + 2)
    for dtype, shape, algorithm, op in found[0]:
        tensors = [tensor_of(rank, dtype, shape) for rank in range(4)]
        if dtype.is_floating_point:
            tensors = [tensor / 3 for tensor in tensors]  # sums are rounded: the order of adding shows
        all_reduce(tensors, op, algorithm)
        for rank in range(4):
            assert torch.equal(found[rank][dtype, shape, algorithm, op], tensors[rank])


def test_conjugate_and_negative_views_send_the_numbers_they_show(pool):
    @by_value
    def of_views():
        numbers = torch.tensor([1 + 2j, 3 - 4j]) * (dist.get_rank() + 1)
        conjugate, negative = numbers.conj(), numbers.clone().conj().imag
        all_reduce_on_ranks(conjugate)
        all_reduce_on_ranks(negative)
        return conjugate.tolist(), negative.tolist(), numbers.tolist()

    # memory holds 1+2j and 3-4j, of which the views show 1-2j, 3+4j, and -2, 4; times 1 + 2 + 3 + 4
    assert pool.run(of_views) == [([10 - 20j, 30 + 40j], [-20, 40], [10 + 20j, 30 - 40j])] * 4


def test_a_rank_refuses_wrong_arguments_and_leaves_its_tensor(pool):
    @by_value
    def refused():
        said, tensor = [], torch.ones(2)
        with torch.inference_mode():
            frozen = torch.ones(2)
        for call in (
            lambda: all_reduce_on_ranks(tensor, None),
            lambda: all_reduce_on_ranks(tensor, ["sum"]),
            lambda: all_reduce_on_ranks(tensor, "sum", 3),
            lambda: all_reduce_on_ranks(tensor, "sum", "ring", "2"),
            lambda: all_reduce_on_ranks([tensor]),
            lambda: all_reduce_on_ranks(tensor.expand(2, 2)),
            lambda: all_reduce_on_ranks(frozen),
        ):
            try:
                call()
                said.append("nothing")
            except (TypeError, ValueError) as error:
                said.append(str(error).split(":")[0])
        return said, tensor.tolist(), frozen.tolist()

    names = ["op", "op", "algorithm", "per_host", "tensor", "tensor", "tensor"]
    assert pool.run(refused) == [(names, [1, 1], [1, 1])] * 4


def test_a_rank_refuses_before_it_sends(pool):
    @by_value
    def refused():
        try:
            all_reduce_on_ranks(torch.ones(2), "sum", "bus")
        except ValueError as error:
            return str(error)

    assert all("algorithm: expected one of naive" in text for text in pool.run(refused))
    with pytest.raises(WorkersError, match=r'op="mean": expected floating point tensors, got torch.int64'):
        pool.run(by_value(lambda: all_reduce_on_ranks(torch.ones(2).long(), "mean")))
