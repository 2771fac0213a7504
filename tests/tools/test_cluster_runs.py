"""Several hosts on one machine, really run: small jobs, faults, interruptions; what is left behind is counted.

The runs on loopback need nothing; those in network namespaces are skipped, with a reason, where there are none.
"""

import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from d2lite.labs.chapter_16 import card_from_json, compare_with_measured, measured_from_json
from tools.cluster import agents, faults, hosts, links, processes, puzzle, rings, speed

ROOT = Path(__file__).parents[2]
SHORT = ["-m", "d2lite.training.ddp", "--num-examples", "256", "--num-epochs", "1"]
why_not = hosts.why_no_namespaces() if os.name != "nt" else "this is Windows"
namespaces_only = pytest.mark.skipif(bool(why_not), reason=f"no network namespaces: {why_not}")
pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs Linux or macOS")

SLEEPERS = """
import sys, time
from tools.cluster import agents, hosts
with hosts.loopback(2) as cluster, agents.Job(cluster, ["--no-python", "sleep", "600"]) as job:
    while not all(len(job.pids(rank)) > 1 for rank in (0, 1)):
        time.sleep(0.1)
    print(*job.pids(0), *job.pids(1), flush=True)
    time.sleep(600)
"""

RECEIVER = """
import socket, time
listener = socket.create_server(("10.77.0.1", 5000))
link, _ = listener.accept()
link.sendall(link.recv(1))
began, n = time.monotonic(), 0
while part := link.recv(1 << 20):
    n += len(part)
print(n, time.monotonic() - began)
"""
SENDER = """
import socket, sys, time
for _ in range(100):
    try:
        link = socket.create_connection(("10.77.0.1", 5000))
        break
    except ConnectionRefusedError:
        time.sleep(0.1)
began = time.monotonic()
link.sendall(b"?")
link.recv(1)
print(time.monotonic() - began)
link.sendall(bytes(int(sys.argv[1])))
"""


def spaces():
    """The namespaces of this machine that are ours, one a line."""
    if not shutil.which("ip"):
        return []
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, timeout=20).stdout
    return [line for line in listed.splitlines() if line.startswith("d2lite-")]


@pytest.fixture(autouse=True)
def nothing_left(monkeypatch, tmp_path):
    """No process, no namespace of ours, no temporary folder is there after a test that was not there before."""

    def left_over():
        mine = [line for line in spaces() if line.startswith(f"d2lite-{os.getpid()}-")]
        return mine, processes.tree(os.getpid())[1:], list(tmp_path.glob("notebook-ranks-*"))

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = left_over()
    yield
    assert left_over() == before


def until(condition, seconds=60):
    """Wait for a condition; fail after so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.1)


@pytest.mark.slow
def test_two_agents_on_loopback_train_one_network():
    with hosts.loopback(2) as cluster:
        with agents.Job(cluster, SHORT) as job:
            assert job.wait(90) == [0, 0], job.said(0)
            assert "2 devices" in job.said(0) and "finished" in job.said(0) and "2 devices" not in job.said(1)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each is a new Python")
def test_agents_and_workers_are_forks_whose_log_is_that_of_new_processes():
    script = str(ROOT / "book" / "scripts" / "train_ddp.py")
    with hosts.loopback(2) as cluster, agents.Job(cluster, [script, "--synthetic=64"], **puzzle.PUZZLE) as job:
        command = Path(f"/proc/{job.pids(0)[0]}/cmdline").read_text()
        assert job.wait(60) == [1, 1]
        log = job.said(1)
    assert "tools.cluster.forks" in command
    assert puzzle.mistake_in(log) == 2 and "forks.py" not in log and "runpy" not in log
    assert log.startswith(f'Traceback (most recent call last):\n  File "{script}"')
    assert f"of binary: {sys.executable}" in log and f"{script} FAILED" in log


@pytest.mark.slow
def test_a_job_that_is_interrupted_leaves_nothing():
    with pytest.raises(KeyboardInterrupt):
        with hosts.loopback(2) as cluster, agents.Job(cluster, ["--no-python", "sleep", "600"]) as job:
            until(lambda: len(job.pids(0)) == 2)  # the agent and its worker
            raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent was killed")
def test_a_job_whose_starter_is_killed_ends_and_the_next_one_sweeps_up(tmp_path):
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    starter = subprocess.Popen([sys.executable, "-c", SLEEPERS], stdout=subprocess.PIPE, text=True, env=env)
    pids = [int(pid) for pid in starter.stdout.readline().split()]
    assert len(pids) == 4
    starter.kill()
    starter.communicate()
    until(lambda: not any(map(processes.running, pids)))
    assert list(tmp_path.glob("notebook-ranks-*"))
    with hosts.loopback(1) as cluster:
        assert list(tmp_path.glob("notebook-ranks-*")) == [cluster.folder]


@pytest.mark.slow
def test_nobody_serves_and_it_is_over_in_time():
    with hosts.loopback(2) as cluster, agents.Job(cluster, SHORT, is_host=False, join_timeout_s=2) as job:
        assert job.wait(60) == [1, 1]
        assert "timed out" in agents.last_words(job.said(0), 2)[0]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_a_silenced_host_is_ended_with_the_job():
    with hosts.loopback(2) as cluster, agents.Job(cluster, ["--no-python", "sleep", "600"]) as job:
        while not all(len(job.pids(rank)) > 1 for rank in (0, 1)):
            assert job.codes() == [None, None]
            time.sleep(0.1)
        job.silence_host(1)
        deadline = time.monotonic() + 10
        while Path(f"/proc/{job.pids(1)[1]}/stat").read_text().split()[2] != "T":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert job.hurt == {1}


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_the_job_goes_on():
    settings = {"num_epochs": 2, "num_examples": 640, "batch_size": 128}
    with hosts.loopback(2) as cluster:
        told = faults.inject(cluster, "kill a worker", timeout_s=2, settings=settings)
    assert told["ranks"] == 2 and told["lost_steps"] >= 1 and told["end"] == "all 10 steps done", told
    assert 0 < told["noticed_s"] < told["resumed_s"]


@namespaces_only
@pytest.mark.parametrize("delay_ms", [0, 5])
def test_a_link_is_as_narrow_and_as_long_as_asked_for(delay_ms):
    n_bytes, mbit = 2_000_000, 200
    with hosts.namespaces(2, mbit, delay_ms) as cluster:
        assert cluster.shaped_by != "nothing"
        first, second = (
            subprocess.Popen(
                [*host.prefix, sys.executable, "-c", code, str(n_bytes)], stdout=subprocess.PIPE, text=True
            )
            for host, code in zip(cluster.hosts, (RECEIVER, SENDER), strict=True)
        )
        answered_s = float(second.communicate(timeout=30)[0])
        received, took_s = first.communicate(timeout=30)[0].split()
    assert int(received) == n_bytes
    assert answered_s >= 2 * delay_ms / 1000
    assert float(took_s) >= 0.8 * (n_bytes - 100_000) * 8 / (mbit * 1e6)  # a burst may go out at once


@pytest.mark.slow
@namespaces_only
def test_hosts_in_namespaces_train():
    found = speed.measure(2, 200, 5, arguments=["--nets", "MLP", "--num-epochs", "2"])
    net = found["nets"]["MLP"]
    assert "2 network namespaces" in found["where"] and found["small_all_reduce_s"] >= 0.01
    assert min(net["step_s"]) > 0.7 * speed.predicted_step_s(0, net["n_bytes"], 2, 200e6 / 8)


@pytest.mark.slow
def test_ranks_measure_what_a_prediction_card_has():
    small = ["--width=64", "--depth=3", "--batch-size=64", "--steps=3", "--bucket-mb=0.02"]
    with hosts.loopback(2) as cluster:
        path = cluster.folder / "card.json"
        options = ["--card", str(path), *small, "--slow-rank=1", "--slow-s=0.5"]
        found = speed.run_script(cluster, "measure_card", options, 90, "loopback")
        card = card_from_json(path.read_text())
    measured = measured_from_json(json.dumps(found))
    fast, slow = measured.compute_s
    assert slow > fast + 0.4 and min(measured.step_s) > 0.45 and len(measured.step_s) == 3
    n_bytes = 4 * (785 * 64 + 2 * 65 * 64 + 650)
    # 20 KiB: the head and the third layer do not fill a bucket without the second; the first is a bucket of its own
    assert card.mesh == {"data": 2} and card.n_bytes == n_bytes and card.num_messages == 2 * 2
    assert card.straggler_s > 0.4 and card.latency_s == measured.latency_s
    assert compare_with_measured(card, measured).terms["straggler"] == pytest.approx(0, abs=1e-6)


def test_one_rank_alone_has_nothing_to_measure(monkeypatch, capsys):
    script = ROOT / "book" / "scripts" / "measure_card.py"
    monkeypatch.setattr(sys, "argv", ["measure_card.py", "--out", "x.json"])
    monkeypatch.setenv("WORLD_SIZE", "1")
    with pytest.raises(SystemExit):
        runpy.run_path(str(script), run_name="__main__")
    assert "expected torchrun with two ranks or more, got one" in capsys.readouterr().err


@pytest.mark.release
@namespaces_only
def test_with_lo_a_host_looks_for_the_other_one_inside_itself():
    script = str(ROOT / "book" / "scripts" / "train_ddp.py")
    with hosts.namespaces(2) as cluster, agents.Job(cluster, [script, "--synthetic=64"], interface="lo") as job:
        codes = job.wait(20)  # the ports are random, and decide which rank connects; the other one may wait longer
        assert 1 in codes and set(codes) <= {1, None}
        assert "Connection refused, remote=[127.0.0.1]" in job.said(0) + job.said(1)


@pytest.mark.release
@namespaces_only
def test_algorithms_on_hosts_give_the_right_sum_in_no_less_than_their_cables_need():
    found = rings.measure(2, 2, 100, arguments=["--repeats=1", "--algorithms", "naive", "two-level"])
    naive, two_level = rings.rows([found])
    assert found["hosts"] == 2 and found["world_size"] == 4 and found["shaped_by"] != "nothing"
    assert naive["measured_s"] > 0.8 * naive["predicted_s"] and two_level["measured_factor"] > 1


@namespaces_only
def test_what_a_killed_run_left_is_swept_up():
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    space = links.name(gone.pid, "0")
    subprocess.run(["ip", "netns", "add", space], check=True)
    inside = subprocess.Popen(["ip", "netns", "exec", space, "sleep", "600"])
    hosts.sweep()
    assert inside.wait(5) == -signal.SIGKILL
    assert space not in "".join(spaces())


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_line_clears_up_when_it_is_interrupted(number):
    command = [sys.executable, "-m", "tools.cluster", "speed", "--hosts", "2", "--bandwidths", "100", "--delays", "5"]
    run = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        until(lambda: len(agents_below(run.pid)) == 2)
        found = processes.tree(run.pid)
        run.send_signal(number)
        _, err = run.communicate(timeout=30)
    finally:
        processes.end([run.pid])
    assert run.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[number], err
    assert not any(map(processes.running, found))
    assert f"d2lite-{run.pid}-" not in "".join(spaces())


def agents_below(pid):
    """The agents of two hosts among what a process has started."""
    found = []
    for child in processes.tree(pid):
        listed = subprocess.run(["ps", "-o", "args=", "-p", str(child)], capture_output=True, text=True).stdout
        if "torch.distributed.run" in listed:
            found.append(child)
    return found
