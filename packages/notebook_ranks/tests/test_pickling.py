"""Which functions a pool takes, and what comes back from them."""

import functools
import os
import re
import sys

import cloudpickle
import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from d2lite.devices import num_gpus
from notebook_ranks import pickling
from notebook_ranks.pickling import pickled_job, require_generator_function
from notebook_ranks.pool import Workers, WorkersError
from notebook_ranks.shared.checks import require_plain_function

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Workers needs Linux or macOS")


def plain():
    return 1


def count():
    yield 1


async def coroutine():
    return 1


async def items():
    yield 1


class Counter:
    def __call__(self):
        yield 1

    def plain(self):
        return 1


@functools.wraps(count)
def decorated():
    return count()


FUNCTIONS = [plain, len, functools.partial(int, "3"), Counter().plain, torch.get_num_threads, nn.Linear(1, 1), dict]
GENERATORS = [count, functools.partial(count), Counter(), torch.no_grad()(count)]


@pytest.mark.parametrize("fn", [*FUNCTIONS, decorated], ids=lambda fn: re.sub(r" at 0x\w+", "", repr(fn)))
def test_run_takes_what_returns(fn):
    require_plain_function("fn", fn)


@pytest.mark.parametrize("fn", GENERATORS, ids=lambda fn: re.sub(r" at 0x\w+", "", repr(fn)))
def test_run_refuses_a_generator_function(fn):
    with pytest.raises(TypeError, match="fn: expected a function that runs when it is called, got a gener.*Use stream"):
        Workers(1).run(fn)


@pytest.mark.parametrize("fn", [*GENERATORS, decorated], ids=lambda fn: re.sub(r" at 0x\w+", "", repr(fn)))
def test_stream_takes_a_generator_function(fn):
    require_generator_function(fn)


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: re.sub(r" at 0x\w+", "", repr(fn)))
def test_stream_refuses_what_does_not_yield_when_it_is_called(fn):
    with pytest.raises(TypeError, match="fn: expected a generator function, got .*, which does not yield. Use run"):
        Workers(1).stream(fn)  # and not when the loop begins


@pytest.mark.parametrize(
    "fn", [coroutine, items, functools.partial(coroutine)], ids=lambda fn: re.sub(r" at 0x\w+", "", repr(fn))
)
@pytest.mark.parametrize("call", ["run", "stream"])
def test_async_functions_are_refused(fn, call):
    with pytest.raises(
        TypeError, match="fn: expected a .*function that runs when .*, got an async .*function: .*asyncio.run"
    ):
        getattr(Workers(1), call)(fn)


def test_what_is_no_function_is_refused():
    for call, kind in ((Workers(1).run, "function"), (Workers(1).stream, "generator function")):
        with pytest.raises(TypeError, match=f"fn: expected a {kind}, got int. Pass the function itself"):
            call(3)


def test_a_large_job_is_warned_about(monkeypatch):
    monkeypatch.setattr(pickling, "LARGE_BYTES", 1000)
    data = torch.zeros(1000)
    with pytest.warns(UserWarning, match="fn and what it uses are 0 MB, and each of 2 ranks gets a copy"):
        pickled_job(lambda: data, (), 2)


def test_code_keeps_the_name_of_its_file_also_that_of_a_function_inside():
    def outer():
        return lambda: 1

    outer.__module__ = "__main__"  # as in a cell: pickled by value
    again, _ = cloudpickle.loads(pickled_job(outer, (), 1))
    assert again is not outer
    assert again.__code__.co_filename == again().__code__.co_filename == __file__


def test_a_cached_function_of_a_cell_is_sent_by_value(monkeypatch):
    @functools.lru_cache(maxsize=7)
    def squared(n):
        return n * n

    for fn in (squared, squared.__wrapped__):
        fn.__module__, fn.__qualname__ = "__main__", "squared"
    monkeypatch.setattr(sys.modules["__main__"], "squared", squared, raising=False)
    again, _ = cloudpickle.loads(pickled_job(squared, (), 1))
    assert again is not squared  # a rank has no such name in its own __main__
    assert again(3) == 9 and again.cache_parameters()["maxsize"] == 7


class Unwilling:
    """An object whose pickling raises an error that is no TypeError."""

    def __reduce__(self):
        raise ValueError("I stay here")


def test_what_cannot_be_pickled_is_a_type_error_whatever_its_objects_raise():
    with pytest.raises(TypeError, match="fn: expected .* that can be pickled, got ValueError: I stay here. Make") as e:
        pickled_job(plain, (Unwilling(),), 2)
    assert isinstance(e.value.__cause__, ValueError)


class OnlyInARank:
    """Its copy cannot be made in the process that has the pool."""

    def __init__(self):
        self.pid = os.getpid()

    def __setstate__(self, state):
        raise RuntimeError("not here")


@pytest.mark.slow
@pytest.mark.skipif(bool(num_gpus()), reason="the ranks of these tests compute on CPUs")
def test_a_result_that_exists_in_a_rank_only_is_named_and_the_pool_lives():
    def wrapped():
        return DistributedDataParallel(nn.Linear(2, 2))

    def by_rank_1():
        import torch.distributed as dist

        return OnlyInARank() if dist.get_rank() == 1 else None

    def yielded():
        yield OnlyInARank()

    for thing in (wrapped, by_rank_1, yielded, OnlyInARank):
        thing.__module__ = "__main__"
    with Workers(2, timeout_s=20) as pool:
        pids = pool.run(os.getpid)
        with pytest.raises(WorkersError, match=r"rank 0 returned something that.*Default process group.*state_dict"):
            pool.run(wrapped)
        assert pool.run(os.getpid) == pids
        with pytest.raises(WorkersError, match=r"rank 1 returned something that exists in a rank only \(RuntimeError"):
            pool.run(by_rank_1)
        assert pool.run(os.getpid) == pids
        with pytest.raises(WorkersError, match="returned something that exists in a rank only"):
            list(pool.stream(yielded))
        assert len(pool.run(os.getpid)) == 2
