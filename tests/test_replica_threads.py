import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
import torch

from d2lite import replica_threads
from d2lite.replica_threads import one_intra_op_thread, parallel_apply
from d2lite.run_events import Stopped, emit, listening

CPU = torch.device("cpu")


def test_it_has_a_thread_per_core_with_one_intra_op_thread(monkeypatch):
    monkeypatch.setattr(replica_threads, "num_cores", lambda: 3)
    before = torch.get_num_threads()
    all_here = threading.Barrier(3, timeout=10)  # passed only if all three run at once

    def fn(i):
        all_here.wait()
        return i, torch.get_num_threads(), threading.get_ident()

    seen = parallel_apply(fn, [CPU] * 3, range(3))
    assert [i for i, _, _ in seen] == [0, 1, 2]
    assert [n for _, n, _ in seen] == [1, 1, 1]
    assert len({thread for _, _, thread in seen}) == 3
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("cores", [1, 2])
def test_more_replicas_than_cores_run_one_after_another(monkeypatch, cores):
    monkeypatch.setattr(replica_threads, "num_cores", lambda: cores)
    all_here = threading.Barrier(cores, timeout=10)  # passed only if as many as there are cores run at once
    lock, running, most = threading.Lock(), set(), []

    def fn(i):
        with lock:
            running.add(i)
            most.append(len(running))
        all_here.wait()
        with lock:
            running.discard(i)
        return i

    assert parallel_apply(fn, [CPU] * 6, range(6)) == list(range(6))
    assert max(most) == cores


def test_thread_counts_come_back_after_an_error():
    before = torch.get_num_threads()
    with pytest.raises(RuntimeError):
        parallel_apply(lambda: 1 / 0, [CPU] * 2)
    alive = threading.active_count()
    with pytest.raises(RuntimeError):
        parallel_apply(lambda: 1 / 0, [CPU] * 2)
    assert torch.get_num_threads() == before and threading.active_count() == alive


def test_parallel_apply_names_the_replica_that_failed():
    def fn(i):
        if i == 1:
            raise KeyError("W3")
        return i

    with pytest.raises(RuntimeError, match=r"replica 1 on cpu failed: KeyError: 'W3'") as caught:
        parallel_apply(fn, [CPU] * 3, range(3))
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.skipif(os.name == "nt", reason="needs signals")
def test_parallel_apply_waits_for_the_others_when_interrupted(monkeypatch):
    monkeypatch.setattr(replica_threads, "num_cores", lambda: 2)
    done = []

    def fn(i):
        time.sleep(0.5)
        done.append(i)

    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        parallel_apply(fn, [CPU] * 3, range(3))  # the third has not started yet: it never does
    timer.join()
    assert sorted(done) == [0, 1]
    assert parallel_apply(int, [CPU] * 3) == [0, 0, 0]  # the threads work again


@pytest.mark.parametrize("raised", [KeyboardInterrupt, Stopped])
def test_an_interrupt_while_replicas_are_submitted_leaves_none_running(monkeypatch, raised):
    cores, done = replica_threads._cores(2), []

    class Interrupted:
        submitted = []

        def submit(self, *args):
            self.submitted.append(cores.submit(*args))
            if len(self.submitted) == 2:
                time.sleep(0.2)  # a replica that could start would
                raise raised
            return self.submitted[-1]

    monkeypatch.setattr(replica_threads, "_cores", lambda n: Interrupted())
    with pytest.raises(raised):
        parallel_apply(done.append, [CPU] * 3, range(3))
    for future in Interrupted.submitted:
        future.result(20)
    assert done == []


@pytest.mark.parametrize("nested", [False, True], ids=["on threads", "nested"])
@pytest.mark.parametrize("raised", [GeneratorExit, KeyboardInterrupt, Stopped, SystemExit])
def test_what_is_no_exception_leaves_a_replica_as_it_is_and_later_replicas_never_start(monkeypatch, raised, nested):
    monkeypatch.setattr(replica_threads, "num_cores", lambda: 2)
    done = []

    def fn(i):
        if i == 0:
            raise raised
        time.sleep(0.1)
        done.append(i)

    def call():
        return parallel_apply(fn, [CPU] * 9, range(9))

    with pytest.raises(raised):
        parallel_apply(call, [CPU]) if nested else call()
    assert len(done) <= (0 if nested else 3)  # those that ran at the same time end
    assert parallel_apply(int, [CPU] * 3) == [0, 0, 0]


@pytest.mark.parametrize("nested", [False, True], ids=["on threads", "nested"])
def test_a_stop_that_reaches_a_replica_stops_the_call(nested):
    def stop(event):
        raise Stopped

    def call():
        return parallel_apply(emit, [CPU] * 2, ["minibatch", "minibatch"])

    with listening(stop), pytest.raises(Stopped):
        parallel_apply(call, [CPU]) if nested else call()


def test_an_error_whose_text_raises_is_named_all_the_same():
    class Hostile(Exception):
        def __str__(self):
            raise KeyboardInterrupt

    def fn():
        raise Hostile

    with pytest.raises(RuntimeError, match=r"replica 0 on cpu failed: Hostile: \(its __str__ raises KeyboardInterrupt"):
        parallel_apply(fn, [CPU])


@pytest.mark.parametrize("grad", [True, False])
def test_parallel_apply_keeps_grad_mode_and_autocast(grad):
    def fn():
        product = torch.ones(2, 2) @ torch.ones(2, 2)
        return torch.is_grad_enabled(), product.dtype

    with torch.set_grad_enabled(grad), torch.autocast("cpu", dtype=torch.bfloat16):
        assert parallel_apply(fn, [CPU] * 2) == [(grad, torch.bfloat16)] * 2
    with torch.inference_mode():
        assert parallel_apply(torch.is_inference_mode_enabled, [CPU] * 2) == [True] * 2


def test_parallel_apply_gives_each_replica_its_entry_of_each_column():
    assert parallel_apply(lambda *args: args, [CPU] * 2, "ab", (x for x in (1, 2)), torch.tensor([3, 4])) == [
        ("a", 1, 3),
        ("b", 2, 4),
    ]
    assert parallel_apply(list, [CPU] * 2) == [[], []]


def test_parallel_apply_wants_an_entry_of_each_column_for_each_device():
    message = r"expected 2 entries in each list after `devices`, one per device, got lists of lengths \[2, 3, 1\]"
    with pytest.raises(ValueError, match=message):
        parallel_apply(print, [CPU] * 2, [1, 2], [1, 2, 3], [1])
    with pytest.raises(TypeError, match=r"one per argument of the function, got 0.1 \(float\). Pass a list"):
        parallel_apply(print, [CPU] * 2, [1, 2], 0.1)
    with pytest.raises(TypeError, match=r"devices: expected a list of devices, got one that holds a tuple"):
        parallel_apply(print, [(1, 2), (3, 4)], [CPU] * 2)


def test_one_intra_op_thread_is_for_the_cpu_and_is_undone():
    before = torch.get_num_threads()
    with pytest.raises(KeyError), one_intra_op_thread([CPU] * 2):
        assert torch.get_num_threads() == 1
        raise KeyError
    assert torch.get_num_threads() == before
    for devices in ([torch.device("cuda", 0)], [CPU, torch.device("cuda", 0)]):
        with one_intra_op_thread(devices):
            assert torch.get_num_threads() == before


def test_the_threads_stay_and_are_as_many_as_cores(monkeypatch):
    monkeypatch.setattr(replica_threads, "num_cores", lambda: 2)
    threads = [set(parallel_apply(threading.get_ident, [CPU] * 4)) for _ in range(5)]
    assert len(set().union(*threads)) <= 2 and threading.get_ident() not in set().union(*threads)


def test_replicas_inside_a_replica_run_one_after_another_in_its_thread(monkeypatch):
    monkeypatch.setattr(replica_threads, "num_cores", lambda: 2)

    def outer(i):
        found = parallel_apply(lambda j: (threading.get_ident(), 10 * i + j), [CPU] * 2, range(2))
        return threading.get_ident(), found

    for i, (thread, inner) in enumerate(parallel_apply(outer, [CPU] * 3, range(3))):
        assert inner == [(thread, 10 * i), (thread, 10 * i + 1)]


def test_a_replica_that_changes_its_intra_op_threads_changes_nobody_else_s():
    parallel_apply(torch.set_num_threads, [CPU] * 3, [2, 2, 2])
    before = torch.get_num_threads()
    assert parallel_apply(torch.get_num_threads, [CPU] * 3) == [1, 1, 1]
    assert torch.get_num_threads() == before


def test_threads_that_start_later_have_as_many_intra_op_threads_as_the_caller():
    code = """
    import threading, torch
    from d2lite import parallel_apply
    torch.set_num_threads(3)
    parallel_apply(int, ["cpu", "cpu"])
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    print(torch.get_num_threads(), *found)
    """
    out = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["3", "3"]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_gets_threads_of_its_own():
    code = """
    import os, signal
    from d2lite import parallel_apply
    parallel_apply(int, ["cpu", "cpu"])
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)  # ends a child that hangs
        os._exit(sum(parallel_apply(int, ["cpu", "cpu"], ["3", "4"])))
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["7"]
