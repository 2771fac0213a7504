"""No call of a pool waits without a bound, and none returns the answer of another call."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest
import torch.distributed as dist

from d2lite.run_events import Stopped
from notebook_ranks import pool as module
from notebook_ranks import rank_handle
from notebook_ranks.pool import Workers, WorkersError
from tests.by_value import by_value

TIMEOUT_S = 2  # of the pool

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Workers needs Linux or macOS")
HANG_S = 20  # a call that takes longer hangs


@by_value
def rank_and(x):
    return dist.get_rank(), x


@by_value
def sleep_on_rank_1():
    if dist.get_rank() == 1:
        time.sleep(600)


@by_value
def pipe_of_this_rank():
    """The descriptor of the rank's pipe: its only unnamed Unix socket."""
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            with socket.socket(fileno=os.dup(fd)) as copy:
                if copy.family == socket.AF_UNIX:
                    return fd
        except OSError:
            pass


def in_a_thread(fn, *args):
    """Call fn in a thread; return the thread, and the list in which its result or its error appears."""
    outcome = []

    def call():
        try:
            outcome.append(fn(*args))
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread, outcome


def has_ended(pid):
    """Whether a process has ended, also if nobody has asked for its exit code yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def all_have_ended(pids, limit_s=5):
    deadline = time.monotonic() + limit_s
    while not (ended := all(map(has_ended, pids))) and time.monotonic() < deadline:
        time.sleep(0.02)
    return ended


def script(code, **environment):
    """Run a program that uses a pool; return its output."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=180,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_child_forked_in_a_rank_does_not_answer_for_it(pool, capsys):
    def fork(x):
        if not os.fork():
            print("I am the child")
            return "child", x  # and never gets there in the notebook
        os.wait()
        return rank_and(x)

    rank_and.__module__ = fork.__module__ = "__main__"
    for x in range(3):
        assert pool.run(fork, x) == [(0, x), (1, x)]
    assert pool.run(rank_and, 7) == [(0, 7), (1, 7)]
    assert "I am the child" in capsys.readouterr().out


def test_an_answer_to_another_call_is_refused(pool):
    def answer_twice(x):
        from notebook_ranks.pipe import pack  # what a thread that stayed behind could send

        fd = pipe_of_this_rank()
        os.write(fd, b"".join(pack((x, "result", b"stale"))))
        return x

    pipe_of_this_rank.__module__ = "__main__"
    number = pool._num_calls
    assert pool.run(by_value(answer_twice), number) == [number] * 2  # the number of the call before this one
    assert pool.run(rank_and, 1) == [(0, 1), (1, 1)]


@pytest.mark.slow
def test_a_close_in_another_thread_ends_a_call(pool):
    pool.run(rank_and, 0)
    thread, outcome = in_a_thread(pool.run, sleep_on_rank_1)
    time.sleep(0.3)
    began = time.monotonic()
    pool.close()
    assert time.monotonic() - began < HANG_S
    thread.join(HANG_S)
    assert isinstance(outcome[0], Stopped)
    assert pool.run(rank_and, 1) == [(0, 1), (1, 1)]


@pytest.mark.slow
def test_a_close_inside_the_loop_of_a_stream_ends_the_loop(pool):
    @by_value
    def forever():
        while True:
            yield 1

    with pytest.raises(Stopped):
        for _ in pool.stream(forever):
            pool.close()
    assert pool.run(rank_and, 1) == [(0, 1), (1, 1)]


@pytest.mark.parametrize("after_s", [0.0, 0.02, 0.3])
def test_a_stop_in_the_first_moments_of_a_call_is_heeded(after_s):
    with Workers(1, timeout_s=5) as fresh:
        thread, outcome = in_a_thread(fresh.run, time.sleep, 600)
        while fresh._call is None:
            time.sleep(0.001)
        time.sleep(after_s)
        fresh.stop()
        thread.join(HANG_S)
        assert isinstance(outcome[0], Stopped)


@pytest.mark.slow
def test_a_stop_between_calls_does_not_end_the_next_one(pool):
    pool.stop()
    assert pool.run(rank_and, 1) == [(0, 1), (1, 1)]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_loop_that_takes_longer_than_a_time_out_loses_no_rank(pool):
    """Rank 1 is asked for its frames, and answers while the loop is busy with an item of rank 0."""

    @by_value
    def items():
        if dist.get_rank() == 0:
            time.sleep(1.8)
            yield None
        else:
            yield os.getpid()
            time.sleep(2.5)

    for rank, pid in pool.stream(items):
        if rank == 1:
            stopped = psutil.Process(pid)
            stopped.suspend()
        else:
            stopped.resume()
            time.sleep(pool.timeout_s + 1)
    assert pool.run(rank_and, 3) == [(0, 3), (1, 3)] and stopped.is_running()


@pytest.mark.slow
def test_a_dead_rank_is_found_although_its_child_has_its_pipe(pool):
    @by_value
    def leave_a_child_and_die(find):
        import signal
        import subprocess

        if dist.get_rank() == 1:
            child = subprocess.Popen(["sleep", "600"], pass_fds=[find()])
            print(child.pid)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(600)

    pool.run(rank_and, 0)
    began = time.monotonic()
    with pytest.raises(WorkersError, match=r"rank 1 died \(SIGKILL\)") as caught:
        pool.run(leave_a_child_and_die, pipe_of_this_rank)
    assert time.monotonic() - began < 1.9 and caught.value.rank == 1  # the time-out is 2 s
    assert pool.run(rank_and, 1) == [(0, 1), (1, 1)]


@pytest.mark.slow
def test_a_rank_that_is_stopped_does_not_block_a_large_argument(pool):
    pids = pool.run(os.getpid)
    os.kill(pids[1], signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(WorkersError, match="rank 1 was silent for 2 s: it is stopped"):
        pool.run(len, bytes(20_000_000))
    assert time.monotonic() - began < HANG_S
    assert pool.run(len, bytes(20_000_000)) == [20_000_000] * 2


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("end", "message"),
    [("stop", "silent for 2 s"), ("garbage", r"died \(exit code unknown\)")],
)
def test_half_a_message_does_not_block_the_notebook(pool, end, message):
    @by_value
    def send_half(find, end):
        import signal

        if dist.get_rank() == 1:
            os.write(find(), (2**63 if end == "garbage" else 1000).to_bytes(8, "big") + b"half")
            if end == "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(600)

    began = time.monotonic()
    with pytest.raises(WorkersError, match=f"rank 1 (was )?{message}"):
        pool.run(send_half, pipe_of_this_rank, end)
    assert time.monotonic() - began < HANG_S
    assert pool.run(rank_and, 1) == [(0, 1), (1, 1)]


@pytest.mark.slow
def test_an_agent_that_is_stopped_hides_no_death(pool):
    pids = pool.run(os.getpid)
    starter = pool._ranks[0].starter.process.pid
    os.kill(starter, signal.SIGSTOP)
    began = time.monotonic()
    threading.Timer(0.3, os.kill, (pids[1], signal.SIGKILL)).start()
    with pytest.raises(WorkersError, match=r"rank 1 died \(exit code unknown\)"):
        pool.run(sleep_on_rank_1)
    assert time.monotonic() - began < HANG_S and all_have_ended([starter, *pids])
    assert pool.run(rank_and, 1) == [(0, 1), (1, 1)]


@pytest.mark.skipif(sys.platform != "linux", reason="numbers of Linux")
def test_a_real_time_signal_that_ends_a_rank_is_named(pool):
    @by_value
    def end_by(number):
        if dist.get_rank() == 1:
            os.kill(os.getpid(), number)
        time.sleep(600)

    with pytest.raises(WorkersError, match=r"rank 1 died \(SIGRTMIN\+\d\)"):
        pool.run(end_by, 40)


@pytest.mark.slow
def test_a_rank_that_works_in_one_long_c_call_is_not_given_up(monkeypatch):
    @by_value
    def long_c_call(n):
        return sum(range(n)) > 0  # no other thread of the rank runs meanwhile

    monkeypatch.setattr(rank_handle, "PING_S", 0.1)
    monkeypatch.setattr(rank_handle, "PATIENCE", 1000)
    with Workers(1, timeout_s=0.3) as fresh:
        fresh.run(len, "warm up")
        began = time.monotonic()
        fresh.run(long_c_call, 10_000_000)
        n = int(10_000_000 * max(1, 2 / (time.monotonic() - began)))  # 2 s or more on any machine
        began = time.monotonic()
        assert fresh.run(long_c_call, n) == [True]
        assert time.monotonic() - began > 0.1 + 2 * 0.3


@pytest.mark.slow
def test_a_rank_that_works_in_a_c_call_for_ever_is_given_up(monkeypatch):
    monkeypatch.setattr(rank_handle, "PATIENCE", 3)
    monkeypatch.setattr(rank_handle, "PING_S", 0.3)

    @by_value
    def endless_c_call():
        import re

        re.match("(a*)*b", "a" * 60)

    with Workers(1, timeout_s=0.3) as fresh:
        fresh.run(len, "warm up")
        began = time.monotonic()
        with pytest.raises(WorkersError, match="rank 0 did not answer, although it used its core"):
            fresh.run(endless_c_call)
        assert 3 * 0.3 < time.monotonic() - began < HANG_S


@pytest.mark.slow
def test_a_group_that_is_disturbed_while_it_forms_is_formed_again(monkeypatch):
    starts = []

    def start(*args):
        ranks = launch_ranks(*args)
        if len(starts) < disturbed:
            (ranks[0].starter.folder / "store-0").mkdir()  # in the way of the ranks' store
        starts.append(ranks)
        return ranks

    launch_ranks = module.start_ranks
    monkeypatch.setattr(module, "start_ranks", start)
    disturbed = 1
    with Workers(1, timeout_s=5) as fresh:
        assert fresh.run(rank_and, 1) == [(0, 1)] and len(starts) == 2
        fresh.close()
        starts.clear()
        disturbed = 9
        with pytest.raises(WorkersError, match="rank 0 failed"):
            fresh.run(rank_and, 1)
        assert len(starts) == 2


@pytest.mark.slow
def test_a_notebook_that_ignores_its_children_has_ranks_all_the_same():
    handler = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with Workers(2, timeout_s=5) as fresh:
            pids = fresh.run(os.getpid)
            threading.Timer(0.3, os.kill, (pids[1], signal.SIGKILL)).start()
            with pytest.raises(WorkersError, match=r"rank 1 died \(SIGKILL\)"):
                fresh.run(sleep_on_rank_1)
            assert fresh.run(rank_and, 1) == [(0, 1), (1, 1)]
            pids = fresh.run(os.getpid)
        assert all_have_ended(pids)
    finally:
        signal.signal(signal.SIGCHLD, handler)


@pytest.mark.slow
def test_a_fork_of_the_notebook_does_not_end_the_ranks():
    out = script("""
        import os, sys, warnings
        from notebook_ranks.pool import Workers
        warnings.simplefilter("ignore")  # a fork in a process with threads
        pool = Workers(2)
        pids = pool.run(os.getpid)
        for end in ("sys.exit(0)", "pool.close()", "del pool", "pool.run(len, 'ab') == [2, 2] and pool.close()"):
            if not os.fork():
                exec(end)
                sys.exit(0)
            assert os.wait()[1] == 0
            assert pool.run(os.getpid) == pids, end
        print("all the same", pool._ranks[0].starter.folder.exists())
        pool.close()
    """)
    assert out == "all the same True\n"


@pytest.mark.slow
def test_odd_entries_of_sys_path_and_an_odd_temporary_folder(tmp_path):
    folder = tmp_path / "new\nline ?#%20: ü"
    folder.mkdir()
    out = script(
        """
        import os, pathlib, sys, tempfile
        from notebook_ranks.pool import Workers
        sys.path += [pathlib.Path("/a/path"), b"/bytes", 3, None, "a\\0b", "/not/there"]
        with Workers(2) as pool:
            print(pool.run(len, "ab"), pool._ranks[0].starter.folder.parent == pathlib.Path(tempfile.gettempdir()))
        """,
        TMPDIR=str(folder),
    )
    assert out == "[2, 2] True\n" and not list(folder.glob("notebook-ranks-*"))


@by_value
def start_a_family():
    """Start a fork, a program, and one that has left its parents; return their process ids."""
    import subprocess

    fork = os.fork()
    if not fork:
        time.sleep(600)
    program = subprocess.Popen(["sleep", "600"]).pid
    away = subprocess.Popen(["sh", "-c", "setsid sleep 600 >/dev/null & echo $!"], stdout=subprocess.PIPE, text=True)
    return [fork, program, int(away.stdout.readline())]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the whole family is found on Linux only")
@pytest.mark.parametrize("end", ["close", "kill"])
def test_what_a_rank_has_started_ends_with_the_ranks(pool, end):
    family = [pid for pids in pool.run(start_a_family) for pid in pids]
    assert len(family) == 6 and not any(map(has_ended, family))
    began = time.monotonic()
    if end == "close":
        pool.close()
    else:
        with pytest.raises(WorkersError):
            pool.run(by_value(lambda: os.kill(os.getpid(), 9)))
    assert all_have_ended(family) and time.monotonic() - began < HANG_S


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the whole family is found on Linux only")
def test_what_a_rank_has_started_ends_when_the_notebook_is_killed(tmp_path):
    out = tmp_path / "pids"
    code = f"""
        import os, signal, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from pathlib import Path
        from test_hangs import start_a_family
        from notebook_ranks.pool import Workers
        pool = Workers(1)
        Path({str(out)!r}).write_text(" ".join(map(str, pool.run(start_a_family)[0])))
        os.kill(os.getpid(), signal.SIGKILL)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], timeout=60)
    family = [int(pid) for pid in out.read_text().split()]
    assert len(family) == 3 and all_have_ended(family)
