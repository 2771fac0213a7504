"""A real Slurm on two nodes of this machine: what it shows, how it is kept apart, and that nothing of it is left.

Skipped, with a reason, where there are no network namespaces or no Slurm.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tools.cluster import processes
from tools.slurm import box as slurm
from tools.slurm import demonstrations

ROOT = Path(__file__).parents[2]
why_not = slurm.why_not() if os.name != "nt" else "this is Windows"
pytestmark = [pytest.mark.release, pytest.mark.skipif(bool(why_not), reason=f"no Slurm: {why_not}")]
OF_THE_MACHINE = ("/etc/slurm", "/etc/munge", "/run/munge", "/var/lib/munge", "/var/log/munge", "/var/spool/slurmd")


def namespaces(pid):
    """The namespaces that a process has made."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, timeout=20).stdout
    return [line for line in listed.splitlines() if line.startswith(f"d2lite-{pid}-")]


def programs(pid):
    """{process: name of its program} of all that a process has started."""
    found = {}
    for child in processes.tree(pid)[1:]:
        with contextlib.suppress(OSError):  # gone meanwhile
            found[child] = Path(f"/proc/{child}/comm").read_text().strip()
    return found


def of_the_machine():
    """What the machine's own Slurm and munge have, with the times of their last change, what is mounted, its name."""
    paths = [path for name in OF_THE_MACHINE for path in [Path(name), *Path(name).glob("**/*")] if path.exists()]
    mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if "/run/netns" not in line]
    return {str(path): path.lstat().st_mtime_ns for path in paths}, mounts, os.uname().nodename


def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.1)
    return found


@pytest.fixture(scope="module")
def box():
    with slurm.running_slurm() as running:
        yield running


def shown(box, name):
    """The rows of a demonstration, as (command, printed)."""
    rows = demonstrations.demonstrate(box, name)
    assert all(row["what"] == name and row["seconds"] >= 0 for row in rows)
    return [(row["command"], row["printed"]) for row in rows]


def epochs(printed):
    return [int(number) for number in re.findall(r"epoch (\d+)", printed)]


def test_the_queue_holds_a_job_back_until_there_is_room(box):
    *_, (_, before), (command, _), (_, after) = shown(box, "queue")
    assert re.search(r"first .* R .* node\[1-2\]", before) and re.search(r"second .* PD .*\(Resources\)", before)
    assert command.startswith("scancel ") and "first" not in after.replace("  CG ", "")
    assert re.search(r"second .* R ", after)


def test_the_chapters_script_runs_on_two_nodes(box):
    *_, (_, printed) = shown(box, "train")
    assert epochs(printed) == [1, 2, 3] and printed.count("on 2 ranks") == 3


def test_what_slurm_tells_the_script(box):
    """The same script with a torchrun of paper, which prints what it is started with; at first nothing is given."""
    demonstrations.prepare(box.home)
    paper = box.home / "bin" / "torchrun"
    paper.parent.mkdir(exist_ok=True)
    paper.write_text('#!/bin/sh\necho "$(uname -n) OMP=$OMP_NUM_THREADS IF=$NCCL_SOCKET_IFNAME" "$@"\n')
    paper.chmod(0o755)
    for given, interface in ({}, "eth0"), ({"CHECKPOINT": "/old.pt", "NCCL_SOCKET_IFNAME": "ib0"}, "ib0"):
        before = " ".join(f"{name}={value}" for name, value in given.items())
        printed = box.run(f'PATH="{paper.parent}:$PATH" {before} sbatch --wait train.sbatch', limit_s=60)
        job = int(re.search(r"\d+", printed).group())
        first, *said = (box.home / f"train-ddp-{job}.txt").read_text().splitlines()
        assert first == "2 machines, ranks on each: 1" and len(said) == 2
        for i, line in enumerate(sorted(said)):
            words = line.split()
            assert words[:3] == [f"node{i + 1}", "OMP=1", f"IF={interface}"]
            assert {"--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", f"--rdzv-id={job}"} <= set(words)
            assert f"--rdzv-endpoint=node1:{20000 + job}" in words and f"--local-addr=node{i + 1}" in words
            assert f"--rdzv-conf=is_host={1 - i},join_timeout=300" in words
            checkpoint = words[words.index("--checkpoint") + 1]
            assert checkpoint == given.get("CHECKPOINT", f"{box.home}/checkpoint-{job}.pt")


def test_a_killed_worker_is_replaced_and_the_job_goes_on_from_its_checkpoint(box):
    *_, (_, printed) = shown(box, "killed worker")
    assert "failed (exitcode: -9)" in printed and epochs(printed) == [1, 2, 3, 4, 5, 6]


def test_a_job_that_lost_a_node_is_requeued_and_goes_on_from_its_checkpoint(box):
    *_, (_, nodes), (_, waiting), _, (_, restarts), (_, printed) = shown(box, "lost node")
    assert re.search(r"down\*.* node2", nodes) and " PD " in waiting and restarts == "Restarts=1"
    before, lost, after = printed.partition("DUE TO NODE FAILURE")
    assert lost and epochs(before) + epochs(after) == [1, 2, 3, 4, 5, 6] and printed.count("on 2 ranks") == 6


def test_the_signal_before_the_time_limit_makes_a_checkpoint(box):
    *_, (_, printed) = shown(box, "time limit")
    told = printed.splitlines()
    signalled = next(i for i, line in enumerate(told) if line.startswith("USR1 after "))
    assert told[signalled + 1].endswith("checkpoint written, stopped")
    assert epochs(told[signalled + 2]) == [epochs(told[signalled + 1])[0] + 1]


def test_an_array_runs_two_at_a_time_and_its_results_are_read_back(box):
    *_, (_, listed), (_, printed) = shown(box, "learning rates")
    assert len(re.findall(r" R .*node[12]", listed)) == 2 and listed.count(" PD ") == 2
    found = re.findall(r"learning rate ([\d.]+): epoch 2: test accuracy ([\d.]+)", printed)
    assert [rate for rate, _ in found] == ["0.001", "0.01", "0.1", "1"]
    assert len({accuracy for _, accuracy in found}) > 1


def test_it_listens_on_the_nodes_addresses_alone(box):
    for node, programs_there in enumerate((2, 1)):  # node1 has the controller as well
        listening = [line.split()[3] for line in box.run("ss -Hltn", node).splitlines()]
        assert len(listening) == programs_there
        assert all(address.startswith(f"10.77.0.{node + 1}:") for address in listening), listening
        assert not box.run("ss -Hlun", node)


def test_who_has_a_different_key_is_refused(box):
    folder = box.cluster.folder
    (folder / "other.key").write_bytes(os.urandom(128))
    (folder / "other.key").chmod(0o600)
    conf = (folder / "etc" / "slurm.conf").read_text().replace("munge.socket", "other.socket")
    (folder / "other.conf").write_text(conf)
    run = f"{folder}/run/other"
    line = (
        f"munged --force --key-file={folder}/other.key --socket={run}.socket --seed-file={run}.seed "
        f"--pid-file={run}.pid --log-file={run}.log && SLURM_CONF={folder}/other.conf timeout 20 sinfo"
    )
    with pytest.raises(RuntimeError, match="said: slurm_load_partitions: "):
        box.run(line, 1)
    assert "Munge decode failed: Invalid credential" in (folder / "node1.log").read_text()
    box.run(f"kill $(cat {run}.pid)", 1)
    assert "idle" in box.run("sinfo", 1)


def test_a_node_is_a_machine_of_its_own_and_this_one_is_as_before(box):
    assert box.run("uname -n") == "node1" and box.run("uname -n", 1) == "node2"
    assert "slurmd" in box.run("ps -eo comm", 1) and "slurmctld" not in box.run("ps -eo comm", 1)
    assert str(box.cluster.folder) not in Path("/proc/self/mounts").read_text()
    assert os.uname().nodename not in slurm.NODES


def test_what_goes_wrong_is_told(box):
    with pytest.raises(RuntimeError, match="node2: `scontrol show job 99999` said: .*Invalid job id"):
        box.run("scontrol show job 99999", 1)
    with pytest.raises(TimeoutError, match=r"(?s)pigs fly: not within 0 s.*node1.log:"):
        box.wait(lambda: False, 0, "pigs fly")
    (box.home / "bad.sh").write_text("#!/bin/sh\nexit 3\n")
    job = demonstrations._number(box.run("sbatch bad.sh"))
    with pytest.raises(RuntimeError, match=f"job {job}: expected COMPLETED, got FAILED"):
        demonstrations._until(box, job, "COMPLETED")
    with pytest.raises(RuntimeError, match="node2: no process runs train_ddp.py"):
        demonstrations._worker(box, 1)


@pytest.fixture
def temporary(monkeypatch):
    """A temporary folder with a short path: sockets are in it."""
    with tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_however_it_ends_nothing_is_left(number, temporary):
    before = of_the_machine()
    command = [sys.executable, "-m", "tools.slurm", "--only", "train"]
    run = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        started = until(lambda: "slurmstepd" in (found := programs(run.pid)).values() and found)
        assert {"munged", "slurmctld", "slurmd", "slurmstepd"} <= set(started.values())
        run.send_signal(number)
        _, err = run.communicate(timeout=30)
    finally:
        processes.end([run.pid])
    ends = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGKILL: -9}
    assert run.returncode == ends[number], err
    until(lambda: not any(map(processes.running, started)), 5)
    assert of_the_machine() == before
    if number == signal.SIGKILL:  # its namespaces and its folder are left to the next start
        assert namespaces(run.pid) and list(temporary.glob("notebook-ranks-*"))
        subprocess.run([*command[:-2], "shell"], cwd=ROOT, input="", text=True, check=True, timeout=120)
    assert not namespaces(run.pid) and not list(temporary.glob("notebook-ranks-*"))


def test_a_shell_on_node1():
    command = [sys.executable, "-m", "tools.slurm", "shell"]
    lines = "sinfo --noheader --format='%D %t %N'\nls\nuname -n\n"
    done = subprocess.run(command, cwd=ROOT, input=lines, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    listed = "in_time.sbatch rates.sbatch stop_in_time.py train.sbatch train_ddp.py"
    assert done.stdout.split() == ["2", "idle", "node[1-2]", *listed.split(), "node1"]


def test_a_shell_is_not_ended_by_ctrl_c():
    """In a terminal: Ctrl-C ends what runs in the shell, the shell goes on, and `exit` ends the cluster."""
    import pty

    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execv(sys.executable, [sys.executable, "-m", "tools.slurm", "shell"])
    said = b""

    def wait_for(text):
        nonlocal said
        deadline = time.monotonic() + 60
        while text not in said:
            assert time.monotonic() < deadline, said
            said += os.read(terminal, 1000)
        said = said.partition(text)[2]

    try:
        wait_for(b"node1:")
        os.write(terminal, b"sleep 600; echo after=$?\n")
        wait_for(b"after=$?")
        time.sleep(1)
        os.write(terminal, b"\x03")
        os.write(terminal, b"echo still-$((40 + 2))\n")
        wait_for(b"still-42")
        os.write(terminal, b"exit\n")
        until(lambda: os.waitpid(pid, os.WNOHANG) == (pid, 0), 30)
    finally:
        if processes.running(pid):
            processes.end([pid])
        os.close(terminal)
