"""What the collectives refuse, argument by argument, before anything is written."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from d2lite.collectives import tensor_checks
from d2lite.collectives.execute import execute
from d2lite.collectives.on_devices import (
    all_gather,
    all_reduce,
    broadcast,
    reduce,
    reduce_scatter,
)
from d2lite.collectives.plans import ALGORITHMS, make_plan
from d2lite.collectives.tensor_checks import check_memory
from d2lite.labs.chapter_04 import all_reduce_many
from d2lite.trace import Trace

CALLS = (all_reduce, reduce, reduce_scatter, broadcast, all_gather)


def many(tensors, op="sum"):
    """all_reduce_many with one tensor per device."""
    all_reduce_many([[tensor] for tensor in tensors], op)


def inference():
    with torch.inference_mode():
        return torch.ones(4)


NESTED = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
# what stands second in a list of tensors, and what is said of it
WRONG_TENSORS = {
    "none": (lambda: None, "expected a tensor, got NoneType"),
    "array": (lambda: np.ones(4), "expected a tensor, got ndarray"),
    "shape": (lambda: torch.ones(5), r"expected \(4,\) torch.float32 as on the first device"),
    "dtype": (lambda: torch.ones(4).double(), r"got \(4,\) torch.float64"),
    "sparse": (lambda: torch.ones(4).to_sparse(), "expected a dense tensor, got torch.sparse_coo"),
    "nested": (lambda: NESTED, "expected a dense tensor, got a nested one"),
    "expanded": (lambda: torch.ones(1).expand(4), "expected memory of its own for each number"),
    "meta": (lambda: torch.ones(4, device="meta"), 'expected a tensor with numbers, got one on the device "meta"'),
    "inference": (inference, "expected a tensor that may be written to, got one made in inference_mode"),
}


@pytest.mark.parametrize("kind", WRONG_TENSORS)
@pytest.mark.parametrize("call", [*CALLS, many])
def test_tensors(call, kind):
    make, text = WRONG_TENSORS[kind]
    good = torch.arange(4.0)
    with pytest.raises((TypeError, ValueError), match=r"^(device_)?tensors\[1\](\[0\])?: .*" + text):
        call([good, make()])
    assert good.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("wrong", [None, 3, "ab", {0: torch.ones(1)}, {1}, [], torch.ones(2), (t for t in ())])
@pytest.mark.parametrize("call", [*CALLS, all_reduce_many])
def test_what_is_no_list_of_tensors(call, wrong):
    with pytest.raises((TypeError, ValueError), match="^(device_)?tensors: expected .*, got "):
        call(wrong)


NO_TEXT = [None, 3, ["sum"], np.array(["sum", "sum"]), torch.ones(2), "Sum", "", b"sum", float("nan")]
WRONG = {
    "op": NO_TEXT,
    "algorithm": NO_TEXT,
    "trace": [0, "x", [], Trace, object(), False],
    "per_host": [0, 3, "2", 1.0, True, -1, torch.ones(2)],
    "src": [2, -1, "0", 0.0, True, None, torch.ones(2)],
    "dst": [2, -1, "0", 0.0, True, None, torch.ones(2)],
}


@pytest.mark.parametrize("argument", WRONG)
@pytest.mark.parametrize("call", [*CALLS, many])
def test_other_arguments(call, argument):
    names = call.__code__.co_varnames[: call.__code__.co_argcount]
    for algorithm in ALGORITHMS if argument in names else ():
        for wrong in WRONG[argument]:
            tensors, trace = [torch.arange(4.0), torch.ones(4)], Trace(collective="before")
            options = {"algorithm": algorithm, "trace": trace, argument: wrong} if call is not many else {"op": wrong}
            with pytest.raises((TypeError, ValueError), match=f"^{argument}: expected "):
                call(tensors, **options)
            assert tensors[0].tolist() == [0, 1, 2, 3] and tensors[1].tolist() == [1] * 4
            assert trace.collective == "before"


@pytest.mark.parametrize("dtype", [torch.uint16, torch.float8_e4m3fn, torch.bool, torch.complex64, torch.int32])
def test_what_pytorch_cannot_reduce_is_refused_and_not_left_half_done(dtype):
    for call in (all_reduce, reduce, reduce_scatter, many):
        for op in ("sum", "mean", "max")[: 2 if call is many else 3]:
            tensors = [torch.ones(3).to(dtype) for _ in range(3)]
            try:
                call(tensors, op=op)
            except ValueError as error:
                assert re.match(f'op="{op}": expected ', str(error))
                assert all(tensor.float().tolist() == [1, 1, 1] for tensor in tensors if not dtype.is_complex)


def test_a_full_gpu_is_not_taken_for_a_dtype_that_cannot_be_reduced(monkeypatch):
    def full(own, received, op):
        raise torch.OutOfMemoryError("out of memory")

    tensor_checks._can_reduce.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(tensor_checks, "write_chunk", full)
        with pytest.raises(torch.OutOfMemoryError):
            all_reduce([torch.ones(2), torch.ones(2)], "max")
    all_reduce([torch.ones(2), torch.ones(2)], "max")  # it can, now that there is memory


def test_empty_tensors_are_checked_too():
    for call in (all_reduce, many):
        with pytest.raises(ValueError, match='op="mean": expected floating point'):
            call([torch.ones(0).int(), torch.ones(0).int()], op="mean")
    all_reduce([torch.ones(0), torch.ones(0)], "max")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_inference_tensors_are_reduced_in_inference_mode(algorithm):
    with torch.inference_mode():
        tensors = [torch.ones(4), torch.ones(4)]
        all_reduce(tensors, algorithm=algorithm)
        assert [tensor.tolist() for tensor in tensors] == [[2] * 4] * 2
        many(tensors)
    with pytest.raises(ValueError, match=r"tensors\[0\]: expected a tensor that may be written to"):
        all_reduce(tensors, algorithm=algorithm)
    assert [tensor.tolist() for tensor in tensors] == [[4] * 4] * 2


def test_an_array_that_pytorch_shares_is_seen():
    array = np.zeros(6, dtype=np.float32)
    with pytest.raises(ValueError, match="shares a part of its memory"):
        all_reduce([torch.from_numpy(array[:4]), torch.from_numpy(array[2:])])


base = torch.arange(24.0)
OVERLAPPING = {
    "two blocks": [base.as_strided((2, 2), (4, 2)), base.as_strided((2, 2), (4, 2), 2)],
    "a column and a row": [base.view(4, 6)[:, 1][:4], base.view(4, 6)[1, :4]],
    "every second, every third": [base[::2][:4], base[::3][:4][[0, 1, 2, 3]].new_zeros(4), base[1::3][:4]],
    "unfolded": [base.unfold(0, 3, 1), torch.ones(22, 3)],
    "itself": [base.as_strided((3, 3), (2, 1)), torch.ones(3, 3)],
    "half a number": [base[:4].view(torch.int16)[1:3], base[:4].view(torch.int16)[2:4]],
    "real and complex": [torch.view_as_complex(base.view(12, 2))[:2].real, base[2:4]],
}
TAKING_TURNS = {
    "even and odd": lambda x: [x[::2], x[1::2]],
    "columns": lambda x: [*x.view(4, 6).unbind(1)],
    "blocks": lambda x: [x.view(4, 6)[:, :3], x.view(4, 6)[:, 3:]],
    "diagonals": lambda x: [x.view(4, 6).diagonal(0)[:3], x.view(4, 6).diagonal(1)[:3]],
    "real and imaginary": lambda x: [torch.view_as_complex(x.view(12, 2)).real, x.view(12, 2)[:, 1]],
    "overlapping strides": lambda x: [x.as_strided((2, 3), (3, 2)), x.as_strided((2, 3), (3, 2), 12)],
}


@pytest.mark.parametrize("case", OVERLAPPING)
@pytest.mark.parametrize("call", [*CALLS, many])
def test_tensors_that_share_numbers_are_refused(call, case):
    before = base.clone()
    with pytest.raises(ValueError, match="shares (a part of )?its memory|shares a part of|expected memory of its own"):
        call(OVERLAPPING[case])
    assert torch.equal(base, before)


@pytest.mark.parametrize("case", TAKING_TURNS)
@pytest.mark.parametrize("call", CALLS)
def test_tensors_that_take_turns_in_memory_are_not(call, case):
    views = TAKING_TURNS[case](torch.arange(24.0))
    wanted = [view.clone() for view in views]
    call(views)
    call(wanted)
    assert all(map(torch.equal, views, wanted))


def addresses(tensor):
    """The addresses of all bytes, one by one: what check_memory must find out without listing them."""
    index = np.indices(tuple(tensor.shape)).reshape(tensor.dim(), tensor.numel())
    begins = tensor.data_ptr() + tensor.element_size() * (np.array(tensor.stride(), dtype=int) @ index)
    return [int(begin) + i for begin in begins.reshape(-1) for i in range(tensor.element_size())]


VIEWS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 4), st.integers(0, 7)), max_size=3),
        st.integers(0, 40),
        st.sampled_from([torch.int16, torch.int32, torch.uint8]),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=400)
@given(VIEWS)
def test_shared_memory_is_found_exactly(views):
    memory = torch.zeros(400, dtype=torch.uint8)
    tensors = []
    for sizes, first, dtype in views:
        shape, strides = ([pair[i] for pair in sizes] for i in (0, 1))
        tensors.append(memory.view(dtype).as_strided(shape, strides, first))
    used = [address for tensor in tensors for address in addresses(tensor)]
    shared = len(set(used)) < len(used)
    try:
        check_memory(tensors, [str(i) for i in range(len(tensors))])
    except ValueError:
        assert shared
    else:
        assert not shared
    assert not memory.any()


@pytest.mark.parametrize("op", ["min", ["sum"], 3])
def test_execute_refuses_too(op):
    chunks = [[torch.ones(2)], [torch.ones(2)]]
    with pytest.raises((TypeError, ValueError), match="op: expected one of sum, mean, max"):
        execute(make_plan("all_reduce", "naive", 2), chunks, op)
    assert chunks[0][0].tolist() == [1, 1]
