"""Several hosts on one machine, really run: small jobs, faults, interruptions; what is left behind is counted.

The runs on loopback need nothing; those in network namespaces are skipped, with a reason, where there are none.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tools.cluster import agents, faults, hosts, links, processes, speed

ROOT = Path(__file__).parent.parent
SHORT = ["-m", "d2lite.distributed", "--num-examples", "256", "--num-epochs", "1"]
why_not = hosts.why_no_namespaces()
namespaces_only = pytest.mark.skipif(bool(why_not), reason=f"no network namespaces: {why_not}")


def left_over():
    """What a run may leave: namespaces, torchrun and its workers, temporary folders."""
    spaces = (
        subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout if shutil.which("ip") else ""
    )
    mine = [line for line in spaces.splitlines() if line.startswith(f"d2lite-{os.getpid()}-")]
    return mine, processes.tree(os.getpid())[1:], list(Path(tempfile.gettempdir()).glob("d2lite-cluster-*"))


@pytest.fixture
def counted():
    before = left_over()
    yield
    assert left_over() == before


def test_two_agents_on_loopback_train_one_network(counted):
    with hosts.loopback(2) as cluster:
        with agents.Job(cluster, SHORT) as job:
            assert job.wait(90) == [0, 0], job.said(0)
            assert "k=2" in job.said(0) and "finished" in job.said(0) and "k=2" not in job.said(1)


def test_a_job_that_fails_or_is_interrupted_leaves_nothing(counted):
    with pytest.raises(KeyboardInterrupt):
        with hosts.loopback(2) as cluster, agents.Job(cluster, ["--no-python", "sleep", "600"]) as job:
            deadline = time.monotonic() + 30
            while len(job.pids(0)) < 2 and time.monotonic() < deadline:  # the agent, then its worker
                time.sleep(0.1)
            assert len(job.pids(0)) == 2
            raise KeyboardInterrupt


def test_nobody_serves_and_it_is_over_in_time(counted):
    with hosts.loopback(2) as cluster, agents.Job(cluster, SHORT, is_host=False, join_timeout_s=2) as job:
        assert job.wait(60) == [1, 1]
        assert "timed out" in job.said(0)


@pytest.mark.parametrize("fault", ["kill a host", "silence a host"])
def test_a_fault_on_loopback(counted, fault):
    settings = {"num_epochs": 3, "num_examples": 640, "batch_size": 128}
    with hosts.loopback(2) as cluster:
        told = faults.inject(cluster, fault, timeout_s=2, settings=settings)
    assert told["ranks"] == 1 and told["lost_steps"] >= 1 and told["end"].startswith("all 15 steps done")
    assert told["noticed_by"].startswith("worker 0: ")
    assert told["noticed_s"] < 2 if fault == "kill a host" else 1.9 < told["noticed_s"] < 8


@namespaces_only
@pytest.mark.parametrize("delay_ms", [0, 5])
def test_hosts_in_namespaces_with_a_narrow_link(counted, delay_ms):
    found = speed.measure(2, 200, delay_ms, arguments=["--nets", "MLP", "--num-epochs", "2"])
    net = found["nets"]["MLP"]
    assert "2 network namespaces" in found["where"] and found["shaped_by"] != "nothing"
    assert found["small_all_reduce_s"] >= 2 * delay_ms / 1000
    assert min(net["step_s"]) > 0.7 * speed.predicted_step_s(0, net["n_bytes"], 2, 200e6 / 8)


@namespaces_only
def test_what_a_killed_run_left_is_swept_up():
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    space = links.name(gone.pid, "0")
    subprocess.run(["ip", "netns", "add", space], check=True)
    inside = subprocess.Popen(["ip", "netns", "exec", space, "sleep", "600"])
    hosts.sweep()
    assert inside.wait(5) == -signal.SIGKILL
    assert space not in subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_line_clears_up_when_it_is_interrupted(counted, number):
    command = [sys.executable, "-m", "tools.cluster", "speed", "--hosts", "2", "--bandwidths", "100", "--delays", "5"]
    run = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 30
        while len(processes.tree(run.pid)) < 3 and time.monotonic() < deadline:  # two agents at least
            time.sleep(0.1)
        time.sleep(1)
        run.send_signal(number)
        out, err = run.communicate(timeout=30)
    finally:
        processes.end([run.pid])
    assert run.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[number], err
    spaces = (
        subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout if shutil.which("ip") else ""
    )
    assert f"d2lite-{run.pid}-" not in spaces
