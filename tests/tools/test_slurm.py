"""The Slurm script of chapter 7: correct shell, and the torchrun that each machine would start."""

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[2] / "book" / "scripts").glob("*.sbatch"))
ORDERS = {"nodes", "ntasks-per-node", "gpus-per-node", "cpus-per-task", "time", "output", "job-name"}
EACH = pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.name)
bash = shutil.which("bash")
pytestmark = pytest.mark.skipif(not bash, reason="bash is not installed")


def test_there_is_a_script():
    assert SCRIPTS


@EACH
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
    assert {line.split("--")[1].split("=")[0] for line in lines[:first] if line.startswith("#SBATCH")} == ORDERS
    assert not any(line.startswith("#SBATCH") for line in lines[first:])


def fake(folder, name, text):
    path = folder / name
    path.write_text(f"#!{bash}\n{text}\n")
    path.chmod(0o755)


def submit(path, folder, **extra):
    """Run the script as Slurm would on two machines; return the lines that a torchrun of paper has printed."""
    fake(folder, "scontrol", 'echo "node03"; echo "node04"')
    fake(
        folder,
        "torchrun",
        'echo "OMP=$OMP_NUM_THREADS IF=$NCCL_SOCKET_IFNAME OWN=$TORCH_DISABLE_SHARE_RDZV_TCP_STORE" "$@"',
    )
    fake(
        folder,
        "srun",
        'while [ "${1#--}" != "$1" ]; do shift; done\n'
        'for i in 0 1; do SLURM_NODEID=$i SLURMD_NODENAME="node0$((3 + i))" "$@"; done',
    )
    slurm = {
        "SLURM_JOB_ID": "41234",
        "SLURM_JOB_NODELIST": "node[03-04]",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_CPUS_PER_TASK": "16",
        "SLURM_SUBMIT_DIR": "/home/me",
        "PATH": f"{folder}:{os.environ['PATH']}",
    }
    clean = {k: v for k, v in os.environ.items() if not k.endswith("_SOCKET_IFNAME") and k != "CHECKPOINT"}
    done = subprocess.run([bash, str(path)], capture_output=True, text=True, timeout=20, env=clean | slurm | extra)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def train_ddp_options(words):
    """Parse the words as the training script does, which ends the process if one is not an option of it."""
    spec = importlib.util.spec_from_file_location("train_ddp_script", SCRIPTS[0].with_name("train_ddp.py"))
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script.parse(words)


@EACH
@pytest.mark.parametrize(("gpus", "ranks"), [("4", 4), ("a100:4", 4), (None, 1)])
def test_what_each_machine_starts(path, tmp_path, gpus, ranks):
    said = submit(path, tmp_path, **({"SLURM_GPUS_PER_NODE": gpus} if gpus else {}))
    assert len(said) == 2
    for i, line in enumerate(said):
        words = line.split()
        assert words[:3] == [f"OMP={16 // ranks}", "IF=eth0", "OWN=1"]
        assert {"--nnodes=2", f"--nproc-per-node={ranks}", "--rdzv-backend=c10d", "--rdzv-id=41234"} <= set(words)
        assert "--rdzv-endpoint=node03:21234" in words and f"--local-addr=node0{3 + i}" in words
        assert f"--rdzv-conf=is_host={1 - i},join_timeout=300" in words
        options = train_ddp_options(words[words.index("/home/me/train_ddp.py") + 1 :])
        assert (options.data, options.checkpoint) == ("/home/me/data", "/home/me/checkpoint-41234.pt")
        assert options.batch_size % (2 * ranks) == 0


@EACH
def test_the_interface_can_be_given(path, tmp_path):
    assert all("IF=ib0" in line for line in submit(path, tmp_path, NCCL_SOCKET_IFNAME="ib0"))


@EACH
def test_a_job_that_is_submitted_again_can_resume(path, tmp_path):
    assert all("--checkpoint /home/me/old.pt" in line for line in submit(path, tmp_path, CHECKPOINT="/home/me/old.pt"))
