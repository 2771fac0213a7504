"""The job files for Slurm: correct shell, and what that of chapter 7 starts on machines with GPUs, with fakes.

A real Slurm, on nodes without GPUs, is in tests/tools/test_slurm_runs.py.
"""

import contextlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tools.cluster import hosts
from tools.slurm import __main__ as cli
from tools.slurm import box as slurm
from tools.slurm import demonstrations

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "book" / "scripts" / "train.sbatch"
JOBS = [SCRIPT, *sorted((ROOT / "tools" / "slurm" / "jobs").glob("*.sbatch"))]
EACH = pytest.mark.parametrize("path", JOBS, ids=lambda p: p.name)
ORDERS = {"nodes", "ntasks-per-node", "gpus-per-node", "cpus-per-task", "time", "output", "job-name"}
bash = shutil.which("bash")
needs_bash = pytest.mark.skipif(not bash, reason="bash is not installed")


@EACH
@needs_bash
def test_bash_reads_it(path):
    done = subprocess.run([bash, "-n", str(path)], capture_output=True, text=True, timeout=20)
    assert done.returncode == 0 and not done.stderr, done.stderr


@EACH
@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not installed (apt-get install shellcheck)")
def test_shellcheck_has_nothing_to_say(path):
    done = subprocess.run(["shellcheck", str(path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


@EACH
def test_orders_come_before_the_first_command(path):
    lines = path.read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    orders = {line.split("--")[1].split("=")[0].split()[0] for line in lines[:first] if line.startswith("#SBATCH")}
    assert orders == ORDERS if path == SCRIPT else {"job-name", "time", "output", "cpus-per-task"} < orders
    assert not any(line.startswith("#SBATCH") for line in lines[first:])


def fake(folder, name, text):
    path = folder / name
    path.write_text(f"#!{bash}\n{text}\n")
    path.chmod(0o755)


def submit(folder, **gpus):
    """Run train.sbatch as Slurm would on two machines; return its own line, and those of a torchrun of paper."""
    fake(folder, "scontrol", 'echo "node03"; echo "node04"')
    fake(folder, "torchrun", 'echo "OMP=$OMP_NUM_THREADS" "$@"')
    fake(
        folder,
        "srun",
        'while [ "${1#--}" != "$1" ]; do shift; done\n'
        'for i in 0 1; do SLURM_NODEID=$i SLURMD_NODENAME="node0$((3 + i))" "$@"; done',
    )
    env = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")} | {
        "SLURM_JOB_ID": "41234",
        "SLURM_JOB_NODELIST": "node[03-04]",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_CPUS_PER_TASK": "16",
        "SLURM_SUBMIT_DIR": "/home/me",
        "PATH": f"{folder}:{os.environ['PATH']}",
        **gpus,
    }
    done = subprocess.run([bash, str(SCRIPT)], capture_output=True, text=True, timeout=20, env=env)
    assert done.returncode == 0, done.stderr
    first, *said = done.stdout.splitlines()
    return first, said


def train_ddp_options(words):
    """Parse the words as the training script does, which ends the process if one is not an option of it."""
    spec = importlib.util.spec_from_file_location("train_ddp_script", SCRIPT.with_name("train_ddp.py"))
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script.parse(words)


@needs_bash
@pytest.mark.parametrize(
    "gpus",
    [
        {"SLURM_GPUS_ON_NODE": "4", "SLURM_GPUS_PER_NODE": "a100:4"},  # --gpus-per-node=a100:4
        {"SLURM_GPUS_ON_NODE": "4"},  # --gres=gpu:4
        {"SLURM_GPUS_ON_NODE": "4", "SLURM_GPUS": "8"},  # --gpus=8
    ],
    ids=["per node", "gres", "in all"],
)
def test_machines_with_gpus_start_a_rank_for_each(tmp_path, gpus):
    first, said = submit(tmp_path, **gpus)
    assert first == "2 machines, ranks on each: 4" and len(said) == 2
    for line in said:
        words = line.split()
        assert words[0] == "OMP=4" and "--nproc-per-node=4" in words
        options = train_ddp_options(words[words.index("/home/me/train_ddp.py") + 1 :])
        assert options.data == "/home/me/data" and options.batch_size % 8 == 0


@needs_bash
def test_machines_without_gpus_start_one_rank(tmp_path):
    first, said = submit(tmp_path)
    assert first == "2 machines, ranks on each: 1" and len(said) == 2
    assert all(line.startswith("OMP=16 ") and "--nproc-per-node=1" in line.split() for line in said)


def test_only_marked_lines_are_adapted_to_the_nodes():
    before, after = SCRIPT.read_text(), demonstrations.adapted(SCRIPT.read_text(), 3)
    head, options = before.split("# (7)")
    assert after.split("# (7)")[0].splitlines() == [
        line.replace("=16 ", "=1  ") for line in head.splitlines() if "(2)" not in line
    ]
    mine = after.split("# (7)")[1]
    assert mine.split(" --synthetic")[0] == options.split(" --data")[0]
    words = mine.split('train_ddp.py"')[1].replace("\\\n", " ").replace('"', "").replace("'", "").split()
    assert train_ddp_options(words).num_epochs == 3
    with pytest.raises(ValueError, match=r"train.sbatch: expected one place with .*gpus-per-node.*, got 0"):
        demonstrations.adapted("", 3)


@pytest.mark.skipif(os.name == "nt", reason="needs Linux or macOS")
def test_without_slurm_it_says_what_is_missing(monkeypatch, capsys):
    monkeypatch.setattr(hosts, "why_no_namespaces", lambda: "making network namespaces needs root")
    assert cli.main([]) == 1
    assert capsys.readouterr().err == "No Slurm: making network namespaces needs root.\n"
    with pytest.raises(RuntimeError, match="no Slurm: making network namespaces needs root."):
        with slurm.running_slurm():
            pass
    monkeypatch.setattr(hosts, "why_no_namespaces", lambda: "")
    monkeypatch.setattr(slurm.shutil, "which", lambda name: None if name in ("munged", "srun") else name)
    assert slurm.why_not() == (
        "these programs are not installed: srun, munged (Debian, Ubuntu: apt-get install slurm-wlm munge)"
    )


@pytest.mark.skipif(os.name == "nt", reason="needs Linux or macOS")
def test_a_temporary_folder_with_a_long_path_is_refused(monkeypatch):
    monkeypatch.setattr(hosts, "why_no_namespaces", lambda: "")
    monkeypatch.setattr(slurm.shutil, "which", lambda name: name)
    for folder, reason in ("/t" * 33, ""), ("/t" * 33 + "s", f"TMPDIR, {'/t' * 33}s, is too long .* 66 characters"):
        monkeypatch.setattr(tempfile, "tempdir", folder)
        assert re.match(reason, slurm.why_not()) if reason else not slurm.why_not()


def test_wrong_arguments(capsys):
    for wrong in (["fly"], ["--only", "fly"]):
        with pytest.raises(SystemExit):
            cli.main(wrong)
        assert "invalid choice" in capsys.readouterr().err


def test_the_settings_of_slurm():
    text = slurm.slurm_conf("/box", ["10.77.0.1", "10.77.0.2"])
    assert "AuthType=auth/munge" in text and "socket=/box/run/munge.socket" in text
    assert "NodeName=node2 NodeAddr=10.77.0.2 CPUs=1" in text
    paths = re.findall(r"(?<==)/.*", text)
    assert len(paths) == 5 and all(path.startswith("/box/") for path in paths)


def row(what, command, printed, seconds):
    return {"what": what, "command": command, "printed": printed, "seconds": seconds}


def test_the_table():
    rows = [row("queue", "squeue", "JOBID\n  1", 0.25), row("killed worker", "node2$ kill -KILL 7", "", 3)]
    assert demonstrations.table(rows).splitlines() == [
        "what            seconds  command, and what it printed",
        "queue               0.2  node1$ squeue",
        "                         JOBID",
        "                           1",
        "killed worker       3.0  node2$ kill -KILL 7",
    ]


@pytest.mark.skipif(os.name == "nt", reason="needs Linux or macOS")
def test_a_record_is_written_only_if_all_went_well(monkeypatch, tmp_path, capsys):
    def demonstrate(box, name):
        if name == broken:
            raise TimeoutError("pigs fly: not within 3 s.")
        return [row(name, "squeue", "", 1)]

    monkeypatch.setattr(slurm, "why_not", lambda: "")
    monkeypatch.setattr(slurm, "version", lambda: "1.2")
    monkeypatch.setattr(slurm, "running_slurm", contextlib.nullcontext)
    monkeypatch.setattr(demonstrations, "demonstrate", demonstrate)
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    path = tmp_path / "slurm.json"
    command = ["--only", "queue", "train", "--json", str(path)]
    broken = "train"
    assert cli.main(command) == 1 and not path.exists()
    said = capsys.readouterr()
    assert "queue: done" in said.err and "train: failed: pigs fly" in said.err
    assert f"{path} is left as it is: train did not end as expected." in said.out
    broken = None
    assert cli.main(command) == 0
    kept = json.loads(path.read_text())
    assert kept["rows"] == [row("queue", "squeue", "", 1), row("train", "squeue", "", 1)]
    assert kept["machine"]["slurm"] == "1.2" and kept["command"] == f"python -m tools.slurm {shlex.join(command)}"


def test_the_kept_record():
    text = cli.RESULT.read_text()
    kept = json.loads(text)
    assert kept["schema"] == cli.SCHEMA and kept["command"].startswith("python -m tools.slurm")
    assert kept["machine"]["slurm"] and kept["machine"]["cores"] >= 1
    assert list(dict.fromkeys(found["what"] for found in kept["rows"])) == list(demonstrations.DEMONSTRATIONS)
    assert not re.search(r"/(home|root|tmp|work|Users)\b", text)
