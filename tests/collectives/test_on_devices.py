import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from d2lite.collectives.on_devices import (
    all_gather,
    all_reduce,
    broadcast,
    reduce,
    reduce_scatter,
)
from d2lite.collectives.plans import ALGORITHMS
from d2lite.trace import Trace

SHAPES = st.lists(st.integers(0, 4), max_size=3)
NUMBERS = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.int64, torch.uint8)
EACH = pytest.mark.parametrize("algorithm", ALGORITHMS)


def whole_numbers(k, shape, dtype, seed):
    """k tensors of whole numbers from 0 to 7, whose sums are exact in every dtype."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, 8, shape, generator=generator).to(dtype) for _ in range(k)]


def expected_of(tensors, op):
    stack = torch.stack(tensors)
    if op == "max":
        return stack.amax(0)
    total = stack.sum(0, dtype=stack.dtype)
    return total / len(tensors) if op == "mean" else total


def chunks(tensor, k):
    return tensor.reshape(-1).tensor_split(k)


def same_bits(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)


inputs = given(
    k=st.integers(1, 9),
    shape=SHAPES,
    dtype=st.sampled_from(NUMBERS),
    op=st.sampled_from(["sum", "mean", "max"]),
    seed=st.integers(0, 99),
)


def possible(dtype, op):
    whole = not (dtype.is_floating_point or dtype.is_complex)
    return not (op == "mean" and whole or op == "max" and dtype.is_complex)


@given(k=st.integers(1, 9), shape=SHAPES, op=st.sampled_from(["sum", "mean"]), seed=st.integers(0, 99))
def test_all_reduce_equals_the_oracle_and_all_entries_are_equal(k, shape, op, seed):
    generator = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(k)]
    expected = getattr(torch.stack(tensors), op)(0)
    places = [t.data_ptr() for t in tensors]
    assert all_reduce(tensors, op=op) is None
    assert [t.data_ptr() for t in tensors] == places  # in place, nothing rebound
    torch.testing.assert_close(tensors[0], expected)
    assert all(torch.equal(t, tensors[0]) for t in tensors)


def test_all_reduce_leaves_no_graph():
    params = [torch.ones(2, requires_grad=True) for _ in range(2)]
    all_reduce(params)
    assert all(p.is_leaf and p.tolist() == [2, 2] for p in params)


def test_all_reduce_integers_and_the_mean_of_integers():
    tensors = [torch.tensor([1]), torch.tensor([2])]
    all_reduce(tensors)
    assert [t.item() for t in tensors] == [3, 3]
    with pytest.raises(ValueError, match='op="mean": expected floating point tensors, got torch.int64'):
        all_reduce(tensors, op="mean")


@pytest.mark.parametrize(
    ("tensors", "op", "error", "message"),
    [
        ([torch.ones(2)], "min", ValueError, "op: expected one of sum, mean, max, got 'min'"),
        ([], "sum", ValueError, "tensors: expected a list of tensors"),
        (torch.ones(2), "sum", ValueError, "tensors: expected a list of tensors"),
        ([torch.ones(2), None], "sum", TypeError, r"tensors\[1\]: expected a tensor, got NoneType"),
        ([torch.ones(2), torch.ones(3)], "sum", ValueError, r"tensors\[1\]: expected \(2,\)"),
        ([torch.ones(2), torch.ones(2).double()], "sum", ValueError, "float32.*got .*float64"),
    ],
)
def test_all_reduce_refuses(tensors, op, error, message):
    with pytest.raises(error, match=message):
        all_reduce(tensors, op=op)


def test_all_reduce_refuses_one_tensor_twice():
    one = torch.ones(2)
    with pytest.raises(ValueError, match=r"tensors\[2\] shares its memory with tensors\[0\]"):
        all_reduce([one, torch.ones(2), one.to("cpu")])
    assert one.tolist() == [1, 1]


@EACH
@inputs
def test_all_reduce_with_every_algorithm(algorithm, k, shape, dtype, op, seed):
    assume(possible(dtype, op))
    tensors = whole_numbers(k, shape, dtype, seed)
    expected, places = expected_of(tensors, op), [t.data_ptr() for t in tensors]
    assert all_reduce(tensors, op, algorithm) is None
    assert all(same_bits(t, expected) for t in tensors)
    assert [t.data_ptr() for t in tensors] == places


@EACH
@inputs
def test_reduce_leaves_the_others_alone(algorithm, k, shape, dtype, op, seed):
    assume(possible(dtype, op))
    tensors, dst = whole_numbers(k, shape, dtype, seed), seed % k
    wanted = [t.clone() for t in tensors]
    wanted[dst] = expected_of(tensors, op)
    places = [t.data_ptr() for t in tensors]
    reduce(tensors, dst, op, algorithm)
    assert all(map(same_bits, tensors, wanted)) and [t.data_ptr() for t in tensors] == places


@EACH
@inputs
def test_broadcast(algorithm, k, shape, dtype, op, seed):
    tensors, src = whole_numbers(k, shape, dtype, seed), seed % k
    wanted, places = tensors[src].clone(), [t.data_ptr() for t in tensors]
    broadcast(tensors, src, algorithm)
    assert all(same_bits(t, wanted) for t in tensors) and [t.data_ptr() for t in tensors] == places


@EACH
@inputs
def test_reduce_scatter_and_all_gather_are_the_halves_of_an_all_reduce(algorithm, k, shape, dtype, op, seed):
    assume(possible(dtype, op))
    tensors = whole_numbers(k, shape, dtype, seed)
    before, expected, places = [t.clone() for t in tensors], expected_of(tensors, op), [t.data_ptr() for t in tensors]
    reduce_scatter(tensors, op, algorithm)
    for i in range(k):
        wanted = [*chunks(before[i], k)]
        wanted[i] = chunks(expected, k)[i]
        assert all(map(same_bits, chunks(tensors[i], k), wanted))
    all_gather(tensors, algorithm)
    assert all(same_bits(t, expected) for t in tensors) and [t.data_ptr() for t in tensors] == places


@EACH
@given(k=st.integers(1, 9), n=st.integers(0, 40), op=st.sampled_from(["sum", "mean"]), seed=st.integers(0, 99))
def test_entries_are_equal_bit_for_bit_however_sums_are_rounded(algorithm, k, n, op, seed):
    generator = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(n, generator=generator) * 10.0 ** torch.randint(-6, 7, (n,)) for _ in range(k)]
    if n:
        tensors[0][0] = float("nan")
    expected, naive = expected_of(tensors, op), [t.clone() for t in tensors]
    biggest = torch.stack(tensors).abs().nan_to_num().amax(0)
    all_reduce(naive, op)
    all_reduce(tensors, op, algorithm, Trace())  # with a Trace the naive algorithm, too, follows its plan
    assert all(torch.equal(t.view(torch.int32), tensors[0].view(torch.int32)) for t in tensors)  # NaNs too
    off = (tensors[0] - expected).abs()
    assert tensors[0].isnan().equal(expected.isnan()) and (off.nan_to_num() <= 1e-5 * biggest).all()
    if algorithm == "naive":  # the same order with a plan and without
        assert torch.equal(naive[0].view(torch.int32), tensors[0].view(torch.int32))


@EACH
def test_tensors_that_do_not_lie_in_order(algorithm):
    base = torch.arange(24.0).reshape(2, 3, 2, 2)
    tensors = [base.clone(), base.clone(memory_format=torch.channels_last), base.mT.contiguous().mT, 2 * base]
    places, strides = [t.data_ptr() for t in tensors], [t.stride() for t in tensors]
    assert len(set(strides)) == 3
    for call in (all_reduce, reduce_scatter, reduce):
        copies = [torch.empty_strided(t.shape, t.stride()).copy_(t) for t in tensors]
        call(copies, op="mean", algorithm=algorithm)
        part = slice(0, 6 if call is reduce_scatter else 24)
        assert torch.equal(copies[0].reshape(-1)[part], 1.25 * base.reshape(-1)[part])
    all_reduce(tensors, "sum", algorithm)
    assert all(torch.equal(t, 5 * base) for t in tensors)
    assert [t.data_ptr() for t in tensors] == places and [t.stride() for t in tensors] == strides
    columns = list(torch.ones(5, 3).unbind(1))  # they take turns in memory, and share none
    all_reduce(columns, algorithm=algorithm)
    assert all(column.tolist() == [3] * 5 for column in columns)


def test_parameters_that_want_gradients_keep_no_graph():
    for call in (all_reduce, broadcast, reduce, reduce_scatter, all_gather):
        params = [torch.ones(2, requires_grad=True) for _ in range(3)]
        call(params)
        assert all(p.is_leaf and p.requires_grad and p.grad_fn is None for p in params)


def test_the_maximum_of_booleans():
    tensors = [torch.tensor([False, True, False]), torch.tensor([True, False, False])]
    all_reduce(tensors, "max")
    assert [t.tolist() for t in tensors] == [[True, True, False]] * 2


one, row = torch.ones(3), torch.zeros(6)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: all_reduce([one], "min"), ValueError, 'op: expected one of sum, mean, max, got \'min\''),
        (lambda: all_reduce([one], algorithm="bus"), ValueError, "algorithm: expected one of naive, .*'bus'"),
        (lambda: all_reduce([one], per_host=1), ValueError, 'per_host: expected None, since only "two-level"'),
        (lambda: broadcast([one], 1), ValueError, "src: expected a device from 0 to 0, got 1"),
        (lambda: broadcast([one], -1), ValueError, "src: expected a device from 0 to 0, got -1"),
        (lambda: reduce([one], 0.0), TypeError, r"dst: expected a device from 0 to 0, got 0.0 \(float\)"),
        (lambda: all_gather([]), ValueError, "tensors: expected a list of tensors"),
        (lambda: all_gather(one), ValueError, "tensors: expected a list of tensors"),
        (lambda: reduce([one, None]), TypeError, r"tensors\[1\]: expected a tensor, got NoneType"),
        (lambda: broadcast([one, torch.ones(2)]), ValueError, r"tensors\[1\]: expected \(3,\)"),
        (lambda: reduce_scatter([one, one]), ValueError, r"tensors\[1\] shares its memory with tensors\[0\]"),
        (lambda: reduce_scatter([row[2:], row[:4]]), ValueError, r"tensors\[0\] shares a part of its memory"),
        (lambda: all_reduce([one.expand(2, 3)]), ValueError, r"tensors\[0\]: expected memory of its own"),
        (lambda: all_reduce([one.to_sparse()]), ValueError, r"tensors\[0\]: expected a dense tensor"),
        (lambda: all_reduce([one.int()], "mean"), ValueError, 'op="mean": expected floating point'),
        (lambda: all_reduce([one.bool()]), ValueError, 'op="sum": expected numbers, got torch.bool'),
        (lambda: all_reduce([one.cfloat()], "max"), ValueError, 'op="max": expected numbers that have an order'),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
    assert one.tolist() == [1, 1, 1] and row.tolist() == [0] * 6


def test_a_trace_is_filled_anew():
    trace = Trace()
    all_reduce([torch.zeros(8) for _ in range(4)], algorithm="ring", trace=trace)
    assert (trace.collective, trace.algorithm, len(trace.steps), len(trace.sends)) == ("all_reduce", "ring", 6, 24)
    broadcast([torch.zeros(4, dtype=torch.float64) for _ in range(2)], 1, "tree", trace)
    assert (trace.collective, trace.algorithm, trace.chunk_n_bytes) == ("broadcast", "tree", [32])
    (send,) = trace.sends
    assert (send.step, send.src, send.dst, send.chunk, send.n_bytes, send.adds) == (0, 1, 0, 0, 32, False)
