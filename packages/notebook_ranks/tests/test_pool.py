"""Real ranks: results, failures named with their cause, and nothing left behind."""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest
import torch
import torch.distributed as dist

from benchmarks.leaks import of_a_pool
from d2lite.devices import num_gpus
from d2lite.run_events import Stopped, emit
from d2lite.widgets.panel import Panel
from notebook_ranks import pool as module
from notebook_ranks import rank as in_a_rank
from notebook_ranks import rank_handle, rank_starter_handle
from notebook_ranks.failures import describe_failure
from notebook_ranks.pool import Workers, WorkersError
from tests.by_value import by_value

TIMEOUT_S = 2  # of the pool

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Workers needs Linux or macOS")


def ours():
    """What a pool could leave behind: child processes, open files, folders."""
    me = psutil.Process()
    children = [p.pid for p in me.children(recursive=True) if of_a_pool(p.cmdline())]
    return children, me.num_fds(), sorted(Path(tempfile.gettempdir()).glob("notebook-ranks-*"))


@by_value
def add_ranks(x):
    total = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(total)
    return dist.get_rank(), total.item() + x


@pytest.mark.slow
def test_results_come_in_rank_order_and_the_ranks_stay(pool):
    assert pool.run(add_ranks, 10) == [(0, 13.0), (1, 13.0)]
    pids = pool.run(os.getpid)
    assert pool.run(os.getpid) == pids and os.getpid() not in pids
    assert pool.run(torch.get_num_threads) == [1, 1]
    assert pool.run(lambda: torch.arange(3) * (dist.get_rank() + 1))[1].tolist() == [0, 2, 4]


def test_prints_are_marked_with_the_rank(pool, capsys):
    @by_value
    def speak():
        print(f"I am {dist.get_rank()}", end="")
        print(" of\ntwo", file=sys.stderr)
        emit("point", x=1)  # without a listener

    pool.run(speak)
    lines = capsys.readouterr().out.splitlines()
    for rank in (0, 1):
        assert [line for line in lines if line.startswith(f"[rank {rank}]")] == [
            f"[rank {rank}] I am {rank} of",
            f"[rank {rank}] two",
        ]


def test_items_stream_while_the_ranks_run(pool):
    @by_value
    def count(n):
        for i in range(n):
            yield i, time.time()
            time.sleep(0.5)

    seen = [(rank, i, sent, time.time()) for rank, (i, sent) in pool.stream(count, 3)]
    for rank in (0, 1):
        mine = [(i, sent, received) for r, i, sent, received in seen if r == rank]
        assert [i for i, _, _ in mine] == [0, 1, 2]
        assert mine[0][2] < mine[2][1]  # the first arrived before the last was sent: no item waits for the end


@pytest.mark.slow
def test_a_loop_that_is_left_early_ends_the_ranks_and_the_next_call_works(pool):
    @by_value
    def forever():
        while True:
            yield dist.get_rank()

    for _ in pool.stream(forever):
        break
    assert pool.run(add_ranks, 0)[0] == (0, 3.0)


def raise_error():
    if dist.get_rank() == 1:
        raise ValueError("boom")
    dist.all_reduce(torch.ones(1))


def kill():
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(1))


def exit_rank():
    if dist.get_rank() == 1:
        os._exit(3)
    dist.all_reduce(torch.ones(1))


def stop():
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    dist.all_reduce(torch.ones(1))


def mismatch():
    dist.all_reduce(torch.ones(1 + 9999 * dist.get_rank()))


def skip_alone():
    if dist.get_rank() == 0:
        dist.all_reduce(torch.ones(1))


def skip_later():
    for step in range(3):
        if dist.get_rank() == 0 or step < 2:
            dist.all_reduce(torch.ones(1))


def sleep():
    if dist.get_rank() == 1:
        time.sleep(600)
    dist.all_reduce(torch.ones(1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "at_fault", "message"),
    [
        (
            raise_error,
            1,
            r"rank 1 failed: ValueError: boom\n\nTraceback[^$]*raise ValueError\(\"boom\"\)\nValueError: boom",
        ),
        (kill, 1, r"rank 1 died \(SIGKILL\)"),
        (exit_rank, 1, r"rank 1 died \(exit code 3\)"),
        (stop, 1, "rank 1 was silent for 2 s: it is stopped"),
        (mismatch, None, r"aborted inside PyTorch's C\+\+ code, mostly because sizes or dtypes differ"),
        (skip_alone, None, r"not sure[^$]*rank 1 ended without all_reduce no[^$]*It may also be rank 0[^$]*after 2 s"),
        (skip_later, None, "^not sure which rank is at fault: rank 1 took fewer steps than rank 0"),
        (sleep, 1, r"^rank 1 did not reach all_reduce[^$]*line \d+: time.sleep\(600\)"),
    ],
    ids=lambda p: getattr(p, "__name__", None),
)
def test_a_fault_is_reported_with_the_rank_at_fault_and_the_next_call_works(pool, fault, at_fault, message):
    with pytest.raises(WorkersError, match=message) as caught:
        pool.run(by_value(fault))
    assert caught.value.rank == at_fault
    assert "closed by peer" not in str(caught.value) and sorted(caught.value.reports) == [0, 1]
    assert [r for r, _ in pool.run(add_ranks, 0)] == [0, 1]


@by_value
def kill_rank_1_while_rank_0_is_elsewhere():
    dist.barrier()  # both have begun
    if dist.get_rank() == 1:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


def test_a_death_is_not_named_later_because_another_rank_is_elsewhere(pool, monkeypatch):
    monkeypatch.setattr(rank_handle, "GRACE_S", 500)  # rank 0 reports no error of its own, however long one waits
    with pytest.raises(WorkersError, match=r"(?s)rank 1 died \(SIGKILL\).*rank 0 .*line \d+: time.sleep\(600\)"):
        pool.run(kill_rank_1_while_rank_0_is_elsewhere)


@by_value
def raise_when_all_have_begun():
    dist.barrier()
    if dist.get_rank() == 1:
        time.sleep(0.3)
        raise ValueError("boom")
    dist.all_reduce(torch.ones(1))


@pytest.mark.slow
def test_the_message_contains_what_the_others_were_doing(pool):
    with pytest.raises(WorkersError, match=r"rank 0 (was in raise_when.*all_reduce|lost its connection)"):
        pool.run(by_value(raise_when_all_have_begun))


def test_a_rank_that_had_not_begun_is_not_described_by_our_own_lines():
    raised = {"state": "error", "type": "ValueError", "message": "boom", "frames": []}
    _, message = describe_failure({0: {"state": "running", "frames": in_a_rank._main_thread_frames()}, 1: raised}, 60)
    assert message.endswith("rank 0 had not begun this call yet.")


@pytest.mark.slow
def test_stop_from_another_thread_ends_a_call(pool):
    pool.run(add_ranks, 0)
    ended = []

    def call():
        try:
            pool.run(by_value(sleep))
        except Stopped:
            ended.append(True)

    thread = threading.Thread(target=call)
    thread.start()
    time.sleep(0.5)
    pool.stop()
    thread.join(10)
    assert ended == [True]
    assert pool.run(add_ranks, 0)[1] == (1, 3.0)


@pytest.mark.slow
def test_a_call_that_still_waits_when_the_interpreter_ends_is_stopped():
    fresh = Workers(2)
    fresh.run(add_ranks, 0)
    raised = []

    def call():
        try:
            fresh.run(by_value(sleep))
        except BaseException as error:
            raised.append(type(error))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    time.sleep(0.5)
    fresh._finalize()  # what the interpreter calls at its end
    thread.join(10)
    fresh.close()
    assert raised == [Stopped]


def test_a_failure_of_ranks_that_are_gone_is_a_stop(pool, monkeypatch):
    monkeypatch.setattr("notebook_ranks.pool.last_reports", lambda ranks: ({}, {}))
    with pytest.raises(Stopped):
        pool.run(by_value(raise_error))


@pytest.mark.slow
def test_an_interrupt_ends_the_ranks_and_is_passed_on(pool):
    pool.run(add_ranks, 0)
    pids = pool.run(os.getpid)
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        pool.run(by_value(sleep))
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert pool.run(add_ranks, 0)[0] == (0, 3.0)


def test_a_busy_pool_refuses_a_call(pool):
    thread = threading.Thread(target=lambda: pool.run(by_value(lambda: time.sleep(1))))
    thread.start()
    time.sleep(0.3)
    with pytest.raises(RuntimeError, match="busy with another call"):
        pool.run(add_ranks, 0)
    thread.join()


def test_what_is_no_function_or_cannot_be_pickled_is_refused(pool):
    with pytest.raises(TypeError, match="fn: expected a function, got int"):
        pool.run(3)
    with pytest.raises(TypeError, match="pickle"):
        pool.run(by_value(lambda lock: None), threading.Lock())
    assert pool.run(add_ranks, 0)[0] == (0, 3.0)


@pytest.mark.slow
def test_two_pools_are_independent(pool):
    with Workers(1, timeout_s=3) as other:
        assert other.run(add_ranks, 0) == [(0, 1.0)]
        assert pool.run(add_ranks, 0) == [(0, 3.0), (1, 3.0)]


def test_an_abort_leaves_no_core_file(pool):
    import resource  # not on Windows

    assert pool.run(resource.getrlimit, resource.RLIMIT_CORE) == [(0, 0), (0, 0)]


def test_ranks_open_sockets_on_loopback_only(pool):
    pool.run(add_ranks, 0)
    for pid in pool.run(os.getpid):
        listening = [c.laddr.ip for c in psutil.Process(pid).net_connections("inet") if c.status == "LISTEN"]
        assert all(ip in ("127.0.0.1", "::1") for ip in listening), listening


@pytest.mark.slow
def test_after_the_parent_has_computed_with_many_threads(pool):
    net = torch.nn.Linear(64, 64)
    net(torch.rand(512, 64)).sum().backward()
    with Workers(2, timeout_s=10) as fresh:
        assert fresh.run(add_ranks, 0)[0] == (0, 3.0)


@pytest.mark.slow
def test_nothing_is_left_behind_after_close():
    with Workers(1) as fresh:
        pids = fresh.run(os.getpid)
        assert set(pids) < set(ours()[0])  # the count sees a rank and its starter
    before = ours()
    for end in ("close", "context", "stop", "drop"):
        fresh = Workers(1)
        fresh.run(add_ranks, 0)
        if end == "context":
            with fresh:
                pass
        elif end == "drop":
            del fresh
        else:
            getattr(fresh, end)()
            fresh.close()
    assert ours() == before
    assert not multiprocessing.active_children()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("state", "start"), [("idle", "fork"), ("computing", "fork"), ("stopped", "fork"), ("stopped", "spawn")]
)
def test_nothing_is_left_behind_when_the_parent_is_killed(state, start):
    code = f"""
        import os, signal, sys, time
        from notebook_ranks import rank_starter_handle
        from notebook_ranks.pool import Workers
        rank_starter_handle.START = {start!r}
        pool = Workers(2)
        starter = pool.run(os.getpid) and pool._ranks[0].starter
        pids = [starter.process.pid, *pool.run(os.getpid)]
        print(*pids, starter.folder, flush=True)
        if {state!r} == "stopped":
            os.kill(pids[1], signal.SIGSTOP)
        if {state!r} == "computing":
            pool.run(time.sleep, 600)
        time.sleep(600)
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    *pids, folder = parent.stdout.readline().split()
    time.sleep(0.5)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while any(psutil.pid_exists(int(pid)) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(psutil.pid_exists(int(pid)) for pid in pids) and not Path(folder).exists()


@pytest.mark.skipif(sys.platform != "linux", reason="ranks are forked on Linux only")
def test_forked_ranks_share_the_memory_of_what_was_imported(pool):
    def private_mb():
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("Private")) / 1024

    assert max(pool.run(by_value(private_mb))) < 100  # an import of PyTorch is 290 MB (CUDA build)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or bool(num_gpus()), reason="ranks on CPUs are forked on Linux only")
def test_forked_ranks_share_the_compiler():
    def compiler_is_loaded():
        import sys

        return "torch._dynamo" in sys.modules

    with Workers(1) as fresh:
        assert fresh.run(by_value(compiler_is_loaded)) == [True]


@pytest.mark.slow
def test_torch_compile_works_in_a_rank(pool):
    def compiled():  # this backend imports what the default one does, and needs no C++ compiler
        return torch.compile(lambda x: x + 1, backend="aot_eager_decomp_partition")(torch.ones(2)).tolist()

    assert pool.run(by_value(compiled)) == [[2.0, 2.0]] * 2


@pytest.mark.skipif(bool(num_gpus()), reason="ranks with GPUs have no group for tensors on CPUs")
def test_fsdp_of_the_first_version_works_in_a_rank(pool):
    def gradients():
        from torch.distributed.fsdp import FullyShardedDataParallel

        net = FullyShardedDataParallel(torch.nn.Linear(4, 4), device_id=torch.device("cpu"))
        net(torch.ones(1, 4)).sum().backward()
        return sum(p.grad.numel() for p in net.parameters())

    assert pool.run(by_value(gradients)) == [10, 10]  # each rank has half of 20


def test_the_agent_keeps_nothing_of_what_it_imported(pool):
    pool.run(os.getpid)
    assert psutil.Process(pool._ranks[0].starter.process.pid).memory_info().rss < 60e6  # with PyTorch: 500 MB


def test_forked_ranks_draw_numbers_of_their_own(pool):
    def draw():
        import random

        import numpy as np

        return random.random(), np.random.rand(), torch.initial_seed()

    mine, other = pool.run(by_value(draw))
    assert all(a != b for a, b in zip(mine, other, strict=True))


@pytest.mark.slow
def test_ranks_that_are_not_forked_do_the_same(monkeypatch):
    monkeypatch.setattr(rank_starter_handle, "START", "spawn")
    before = ours()
    with Workers(2, timeout_s=5) as fresh:
        assert fresh.run(add_ranks, 10) == [(0, 13.0), (1, 13.0)]
        with pytest.raises(WorkersError, match=r"rank 1 died \(SIGKILL\)"):
            fresh.run(by_value(kill))
        assert fresh.run(add_ranks, 10) == [(0, 13.0), (1, 13.0)]
    assert ours() == before


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_the_ranks_end_with_an_agent_that_is_killed(sent):
    with Workers(2, timeout_s=5) as fresh:
        pids = fresh.run(os.getpid)
        starter = fresh._ranks[0].starter
        threading.Timer(0.5, os.kill, (starter.process.pid, sent)).start()
        with pytest.raises(WorkersError, match=r"rank \d died \(SIGKILL\)"):
            fresh.run(by_value(sleep))
        until = time.monotonic() + 5
        while any(psutil.pid_exists(pid) for pid in pids) and time.monotonic() < until:
            time.sleep(0.05)
        assert not any(psutil.pid_exists(pid) for pid in pids)
        assert fresh.run(add_ranks, 0)[0] == (0, 3.0)


@pytest.mark.slow
def test_an_agent_that_is_stopped_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(rank_starter_handle, "END_S", 0.5)
    before = ours()
    fresh = Workers(1)
    fresh.run(add_ranks, 0)
    os.kill(fresh._ranks[0].starter.process.pid, signal.SIGSTOP)
    fresh.close()
    until = time.monotonic() + 5
    while ours() != before and time.monotonic() < until:
        time.sleep(0.05)
    assert ours() == before


@pytest.mark.slow
def test_a_machine_without_room_for_another_process_raises_and_leaves_nothing(monkeypatch):
    before = ours()

    def full(*args, **more):
        raise BlockingIOError("Resource temporarily unavailable")

    fresh = Workers(1)
    with monkeypatch.context() as patch:
        patch.setattr(rank_starter_handle.subprocess, "Popen", full)
        with pytest.raises(BlockingIOError):
            fresh.run(add_ranks, 0)
    assert ours() == before
    assert fresh.run(add_ranks, 0) == [(0, 1.0)]
    fresh.close()
    assert ours() == before


@pytest.mark.parametrize("size", [0, -1, 65])
def test_world_size_out_of_range(size):
    with pytest.raises(ValueError, match="world_size: expected a whole number from 1 to 64"):
        Workers(size)


@pytest.mark.parametrize("size", [2.5, True, "2"])
def test_world_size_of_another_type(size):
    with pytest.raises(TypeError, match="world_size: expected"):
        Workers(size)


@pytest.mark.slow
def test_more_ranks_than_cores_warns_and_works(monkeypatch):
    monkeypatch.setattr(module, "num_cores", lambda: 1)
    with pytest.warns(UserWarning, match="2 ranks share 1 CPU cores"):
        pool = Workers(2)
    with pool:
        assert pool.run(add_ranks, 0)[0] == (0, 3.0)


def test_timeout_is_checked():
    with pytest.raises(ValueError, match="timeout_s: expected a finite number above 0, got 0"):
        Workers(1, timeout_s=0)


@by_value
def emit_own_point(each_rank):
    emit("point", names=["loss"], x=[1], y=[float(dist.get_rank())], **({"each_rank": True} if each_rank else {}))


@pytest.mark.parametrize(
    ("each_rank", "curves"), [(False, {"loss": 0.0}), (True, {"loss, rank 0": 0.0, "loss, rank 1": 1.0})]
)
def test_a_panel_draws_one_curve_per_rank_if_asked(pool, each_rank, curves):
    panel = Panel(lambda lr: pool.run(emit_own_point, each_rank), lr=0.1)
    panel.train.click()
    panel.wait()
    assert [(name, curve["y"][0]) for name, curve in panel.runs[-1].curves.items()] == list(curves.items())
    panel.close()
