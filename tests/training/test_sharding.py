import os
import signal
import threading
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d2lite import parallel
from d2lite.devices import try_gpus
from d2lite.parallel import one_intra_op_thread, parallel_apply
from d2lite.training.sharding import replicate, split_batch

CPU = torch.device("cpu")


@given(n=st.integers(1, 60), k=st.integers(1, 9))
def test_split_batch_loses_nothing_and_is_even(n, k):
    X, y = torch.arange(2 * n).view(n, 2), torch.arange(n)
    if n < k:
        with pytest.raises(ValueError, match=f"one example for each of {k} devices, got {n}"):
            split_batch(X, y, [CPU] * k)
        return
    X_shards, y_shards = split_batch(X, y, [CPU] * k)
    sizes = [len(s) for s in X_shards]
    assert len(sizes) == k and max(sizes) - min(sizes) <= 1 and sizes == [len(s) for s in y_shards]
    assert torch.equal(torch.cat(X_shards), X) and torch.equal(torch.cat(y_shards), y)


def test_split_batch_refuses():
    with pytest.raises(ValueError, match="got 4 examples and 3 labels"):
        split_batch(torch.zeros(4, 1), torch.zeros(3), [CPU])
    with pytest.raises(ValueError, match="devices: expected at least one device, got none"):
        split_batch(torch.zeros(4, 1), torch.zeros(4), [])
    with pytest.raises(TypeError, match="devices: expected a list of devices, got device"):
        split_batch(torch.zeros(4, 1), torch.zeros(4), CPU)


@given(k=st.integers(1, 9))
def test_replicas_share_no_storage(k):
    params = [torch.randn(3, 2), torch.zeros(2)]
    copies = replicate(params, [CPU] * k)
    everything = [*params, *(p for replica in copies for p in replica)]
    assert len({p.untyped_storage().data_ptr() for p in everything}) == len(everything)
    assert all(p.requires_grad and p.is_leaf for replica in copies for p in replica)
    assert all(torch.equal(p, q) for replica in copies for p, q in zip(replica, params, strict=True))


def test_parallel_apply_has_a_thread_a_core_with_one_intra_op_thread(monkeypatch):
    monkeypatch.setattr(parallel, "num_cores", lambda: 3)
    before = torch.get_num_threads()
    meet = threading.Barrier(3, timeout=10)  # passed only if all three run at once

    def fn(i):
        meet.wait()
        return i, torch.get_num_threads(), threading.get_ident()

    seen = parallel_apply(fn, [(0,), (1,), (2,)], [CPU] * 3)
    assert [i for i, _, _ in seen] == [0, 1, 2]
    assert [n for _, n, _ in seen] == [1, 1, 1]
    assert len({thread for _, _, thread in seen}) == 3
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("cores", [1, 2])
def test_replicas_take_turns_where_there_are_more_than_cores(monkeypatch, cores):
    monkeypatch.setattr(parallel, "num_cores", lambda: cores)
    meet = threading.Barrier(cores, timeout=10)  # passed only if as many as there are cores run at once
    lock, running, most = threading.Lock(), set(), []

    def fn(i):
        with lock:
            running.add(i)
            most.append(len(running))
        meet.wait()
        with lock:
            running.discard(i)
        return i

    assert parallel_apply(fn, [(i,) for i in range(6)], [CPU] * 6) == list(range(6))
    assert max(most) == cores


def test_parallel_apply_brings_thread_counts_back_after_an_error():
    before, alive = torch.get_num_threads(), threading.active_count()
    with pytest.raises(RuntimeError):
        parallel_apply(lambda: 1 / 0, [(), ()], try_gpus(2))
    assert torch.get_num_threads() == before and threading.active_count() == alive


def test_parallel_apply_names_the_replica_that_failed():
    def fn(i):
        if i == 1:
            raise KeyError("W3")
        return i

    with pytest.raises(RuntimeError, match=r"replica 1 on cpu failed: KeyError: 'W3'") as caught:
        parallel_apply(fn, [(0,), (1,), (2,)], [CPU] * 3)
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.skipif(os.name == "nt", reason="needs signals")
def test_parallel_apply_waits_for_the_others_when_interrupted(monkeypatch):
    monkeypatch.setattr(parallel, "num_cores", lambda: 2)
    done = []

    def fn(i):
        time.sleep(0.5)
        done.append(i)

    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        parallel_apply(fn, [(0,), (1,)], [CPU] * 2)
    timer.join()
    assert sorted(done) == [0, 1]
    assert not [t for t in threading.enumerate() if t.name.startswith("replicas-")]


@pytest.mark.parametrize("grad", [True, False])
def test_parallel_apply_keeps_grad_mode_and_autocast(grad):
    def fn():
        product = torch.ones(2, 2) @ torch.ones(2, 2)
        return torch.is_grad_enabled(), product.dtype

    with torch.set_grad_enabled(grad), torch.autocast("cpu", dtype=torch.bfloat16):
        assert parallel_apply(fn, [(), ()], [CPU] * 2) == [(grad, torch.bfloat16)] * 2
    with torch.inference_mode():
        assert parallel_apply(torch.is_inference_mode_enabled, [(), ()], [CPU] * 2) == [True] * 2


def test_parallel_apply_wants_inputs_for_each_device():
    with pytest.raises(ValueError, match=r"inputs: expected 2 \(one a device\), got 1"):
        parallel_apply(print, [()], [CPU] * 2)


def test_one_thread_each_is_for_the_cpu_and_is_undone():
    before = torch.get_num_threads()
    with pytest.raises(KeyError), one_intra_op_thread([CPU] * 2):
        assert torch.get_num_threads() == 1
        raise KeyError
    assert torch.get_num_threads() == before
    with one_intra_op_thread([torch.device("cuda", 0)]):
        assert torch.get_num_threads() == before
