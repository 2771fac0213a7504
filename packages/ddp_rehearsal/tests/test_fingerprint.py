"""Fingerprints: equal for equal tensors, different for different ones, whatever their type and layout."""

from itertools import permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ddp_rehearsal import gpu_fingerprint
from ddp_rehearsal.fingerprint import (
    MOST_VALUES,
    first_tensor,
    row_prints,
    rows_of_inputs,
    tensor_digest,
    tensor_print,
    tensor_prints,
    tensor_sample,
    unpacked,
)
from ddp_rehearsal.gpu_fingerprint import joined_sums, row_sums

DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.complex64,
)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@given(shape=st.lists(st.integers(0, 4), max_size=3), at=st.integers(0, 63))
def test_one_element_makes_the_difference(dtype, shape, at):
    one = torch.ones(shape, dtype=dtype)
    assert tensor_print(one) == tensor_print(one.clone())
    if one.numel():
        other = one.clone()
        other.view(-1)[at % one.numel()] = 0
        assert tensor_print(one)[0] != tensor_print(other)[0]
        assert tensor_print(one, complete=False)[0] != tensor_print(other, complete=False)[0]  # it is small


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(DTYPES), st.booleans()), max_size=8))
def test_tensors_that_are_read_together_have_the_prints_that_they_have_alone(kinds):
    made = [torch.arange(n).to(dtype).reshape(1, n) for n, dtype, _ in kinds]
    tensors = [t.to_sparse() if sparse else t for t, (_, _, sparse) in zip(made, kinds, strict=True)]
    assert tensor_prints(tensors) == [tensor_print(t) for t in tensors]


# what a GPU computes is computed here by the CPU


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=5).filter(any),
    at=st.integers(0, 63),
    bit=st.integers(0, 7),
)
def test_one_bit_changes_the_sum_of_its_part_alone(dtype, lengths, at, bit):
    n = sum(lengths)
    joined = torch.arange(1, n + 1).to(dtype)
    data = joined.clone().view(torch.uint8)
    data[at % len(data)] ^= 1 << (0 if dtype == torch.bool else bit)
    sums, other = joined_sums(joined, tuple(lengths)), joined_sums(data.view(dtype), tuple(lengths))
    changed = [a != b for a, b in zip(sums, other, strict=True)]
    byte = at % len(data) // joined.element_size()  # the element that has it
    assert changed == [first <= byte < first + k for first, k in zip(firsts(lengths), lengths, strict=True)]
    parts = joined.split(lengths)
    assert sums == [joined_sums(part, (len(part),))[0] for part in parts]  # a part has the same sum alone


def firsts(lengths):
    return [sum(lengths[:i]) for i in range(len(lengths))]


def test_long_tensors_are_summed_piece_by_piece(monkeypatch):
    X = torch.arange(100.0)
    whole = joined_sums(X, (100,))
    rows = row_sums(X.reshape(10, 10))
    monkeypatch.setattr(gpu_fingerprint, "MOST_WORDS", 50)
    assert row_sums(X.reshape(10, 10)) == rows  # five rows at a time
    (in_pieces,) = joined_sums(X, (100,))
    assert in_pieces != whole[0] and row_sums(X.reshape(1, 100)) == [in_pieces]
    for i in range(100):
        other = X.clone()
        other[i] = -1
        assert joined_sums(other, (100,)) != [in_pieces]
    assert joined_sums(torch.cat([X[50:], X[:50]]), (100,)) != [in_pieces]


def test_sums_tell_an_order_and_values_that_only_changed_places():
    X = torch.arange(6.0)
    assert len({joined_sums(X[list(order)], (6,))[0] for order in permutations(range(6))}) == 720
    assert joined_sums(torch.tensor([0.0]), (1,)) != joined_sums(torch.tensor([-0.0]), (1,))


@given(st.permutations(range(6)), st.sampled_from(DTYPES))
def test_sums_of_rows_are_the_same_wherever_they_are(order, dtype):
    rows = torch.eye(6, 7, dtype=torch.float64).to(dtype)
    sums = row_sums(rows)
    assert len(set(sums)) == 6 and row_sums(rows[list(order)]) == [sums[i] for i in order]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_of_few_kinds_of_words_have_sums_of_their_own(dtype):
    n = 40 if dtype == torch.bool else 900
    hot = torch.eye(n, dtype=torch.float64)
    signs = torch.randint(0, 2, (n, 64), generator=torch.Generator().manual_seed(0)).double() * 2 - 1
    for rows in (hot, hot + hot.roll(7, 1), hot - hot.roll(7, 1), signs, 1e-3 * signs):
        distinct = len(set(map(str, rows.to(dtype).tolist())))
        assert len(set(row_sums(rows.to(dtype)))) == distinct


def test_no_other_word_has_the_sum_of_a_word():
    factors = gpu_fingerprint._odd_numbers(torch.device("cpu"))
    assert (factors % 2 == 1).all()
    words = torch.tensor([1.0], dtype=torch.float64).view(torch.int64)
    for change in range(64):  # -1 and its like have most bits in common with their opposites
        for other in (
            words ^ (1 << change if change < 63 else -(1 << 63)),
            ~words,
            -words,
            -words - 1,
            words + change + 1,
        ):
            assert row_sums(words.reshape(1, 1)) != row_sums(other.reshape(1, 1))


def test_examples_are_the_first_table_and_not_a_time_or_a_task():
    x, ids, t = torch.arange(12.0).reshape(4, 3), torch.arange(4), torch.tensor([0.5])
    rows = row_prints(x)
    for given_to_it in ([x], [ids, x], [t, x], [t.expand(4, 1), x], [torch.ones(1, 3), x], [{"i": ids, "x": x}]):
        assert rows_of_inputs(given_to_it) == rows
    mask = torch.ones(4, 3, dtype=torch.bool)
    assert rows_of_inputs([mask, x]) == rows
    users = rows_of_inputs([ids, ids.flip(0)])
    assert len(set(users)) == 4 and users != rows_of_inputs([ids, ids])  # a user and an item
    assert rows_of_inputs([ids.float(), t]) == row_prints(ids.float()) and rows_of_inputs(["text", 3]) == ()


@given(st.permutations(range(6)), st.sampled_from(DTYPES[:6]))
def test_rows_have_the_same_digest_wherever_they_are(order, dtype):
    rows = torch.arange(24).reshape(6, 2, 2).to(dtype)
    prints = row_prints(rows)
    assert len(set(prints)) == 6
    assert row_prints(rows[list(order)]) == tuple(prints[i] for i in order)
    assert row_prints(rows.transpose(1, 2).contiguous().transpose(1, 2)) == prints  # a different layout
    for part in (rows[:, 0], rows[:, :, 0], rows[:, 0, 0], rows[:, :, ::2], rows[:, :1, :1].expand(6, 1, 3), rows[::2]):
        assert row_prints(part) == row_prints(part.clone(memory_format=torch.contiguous_format))


def test_a_tensor_of_a_network_is_read_without_its_history():
    param = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))
    assert row_prints(param) == row_prints(param.detach()) and tensor_print(param) == tensor_print(param.detach())
    assert tensor_sample(param) == tensor_sample(param.detach())


def test_values_are_spread_over_the_tensor():
    for tensor, values in (
        (torch.arange(16.0), (0, 2, 4, 6, 8, 10, 12, 14)),
        (torch.tensor(3.0), (3,)),
        (torch.arange(3), (0, 1, 2)),
        (torch.ones(0), ()),
        (torch.ones(2, dtype=torch.complex64), ()),
    ):
        assert unpacked(tensor_print(tensor)[1]) == values


@given(st.lists(st.floats(allow_nan=False), max_size=8))
def test_values_are_read_to_the_bit(numbers):
    values = unpacked(tensor_print(torch.tensor(numbers, dtype=torch.float64))[1])
    assert list(map(float.hex, values)) == list(map(float.hex, numbers))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_digest_alone_is_that_of_the_print_and_of_a_copy(dtype):
    X = torch.arange(24).reshape(2, 3, 4).to(dtype)
    for tensor in (X, X.mT, X[:, 0], X[:, :, 0], X[..., ::2], X[:, :1].expand(2, 5, 4), X.conj(), X[:0]):
        assert tensor_digest(tensor) == tensor_print(tensor)[0] == tensor_digest(tensor.clone().contiguous())
    assert tensor_digest(torch.eye(2, dtype=dtype).to_sparse()) == "not read"


def test_samples_have_the_norm_the_largest_and_a_few_values():
    X = torch.arange(-32.0, 32.0).reshape(8, 8)
    norm, most, *values = tensor_sample(X)
    assert norm == pytest.approx(X.square().sum().sqrt().item()) and most == 32
    assert values == X.flatten()[::4].tolist()
    assert tensor_sample(torch.tensor([3.0, -4.0])) == (5, 4, 3, -4)
    assert tensor_sample(torch.tensor([3 - 4j])) == (5, 4, 3, -4)
    assert tensor_sample(torch.tensor([True, False])) == (1, 1, 1, 0)
    assert tensor_sample(torch.ones(3, 0)) == tensor_sample(torch.eye(3).to_sparse()) == ()


def test_large_tensors_are_read_in_part_where_that_is_enough():
    one = torch.zeros(4 * MOST_VALUES)
    other = one.clone()
    other[1] = 1
    assert tensor_print(one)[0] != tensor_print(other)[0]
    assert tensor_print(one, complete=False) == tensor_print(other, complete=False)
    other[4] = 1
    assert tensor_print(one, complete=False)[0] != tensor_print(other, complete=False)[0]


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support", "ignore:Sparse CSC", "ignore:Sparse BSR")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_what_is_not_read():
    dense = torch.eye(4)
    others = [dense.to_sparse(), dense.to_sparse_csr(), dense.to_sparse_csc(), dense.to_sparse_bsr(2)]
    others += [dense.to("meta"), torch.nested.nested_tensor([dense, dense[:2]], layout=torch.jagged)]
    for other in others:
        assert tensor_prints([other, dense]) == [("not read", ""), tensor_print(dense)] and tensor_sample(other) == ()
        assert set(row_prints(other)) == {""}
    assert row_prints(torch.ones(3, 0)) == ("",) * 3 and row_prints(torch.ones(0, 3)) == ()
    assert len(row_prints(torch.ones(5000, 1))) == 4096


def test_views_that_are_conjugate_or_negative_are_read_as_their_values():
    X = torch.arange(12.0).reshape(3, 4)
    Z = torch.complex(X, X + 1)
    for view in (Z.conj(), Z.conj().imag):
        assert tensor_prints([view, view]) == [tensor_print(view)] * 2 == [tensor_print(view.clone())] * 2
        assert row_prints(view) == row_prints(view.clone()) and tensor_sample(view) == tensor_sample(view.clone())


def test_the_first_tensor_of_arguments():
    X = torch.ones(2)
    assert first_tensor([[1, torch.tensor(1.0)], {"a": None, "X": X}]) is X
    assert first_tensor([1, "a"]) is None
    assert first_tensor([[[[[[X]]]]]]) is None
