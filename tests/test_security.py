"""Each test holds a sentence of docs/security.md."""

import ast
import ipaddress
import json
import os
import pickle
import platform
import re
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
import torch
import torch.distributed as dist
from torch import nn

import d2lite
from d2lite.learner_ledger import change, read_ledger
from d2lite.training.ddp import load_checkpoint
from d2lite.training.run_record import Run, save
from d2lite.workers import Workers
from d2lite_course import bounds, submitted_files
from d2lite_course.grade import FLAG

ROOT, PACKAGE = Path(__file__).parents[1], Path(d2lite.__file__).parent
PAGE = (ROOT / "docs/security.md").read_text()
FILES = sorted(PACKAGE.rglob("*.py"))
needs_pools = pytest.mark.skipif(os.name == "nt", reason="Workers needs Linux or macOS")


def in_the_ranks():
    total = torch.ones(1)
    dist.all_reduce(total)
    return os.getpid(), [os.environ[f"{library}_SOCKET_IFNAME"] for library in ("GLOO", "NCCL")]


@pytest.mark.slow
@needs_pools
def test_ranks_listen_on_loopback_alone_and_their_folder_is_the_owners():
    temporary = Path(tempfile.gettempdir())
    before, folders = psutil.Process().children(recursive=True), {*temporary.glob("notebook-ranks-*")}
    with Workers(2) as workers:
        found = workers.run(in_the_ranks)
        pool = [process for process in psutil.Process().children(recursive=True) if process not in before]
        connections = [(p.pid, connection) for p in pool for connection in p.net_connections("inet")]
        (folder,) = {*temporary.glob("notebook-ranks-*")} - folders
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700 and folder.stat().st_uid == os.getuid()
    assert not folder.exists() and not any(process.is_running() for process in pool)
    listening = [pid for pid, connection in connections if connection.status == psutil.CONN_LISTEN]
    assert sorted(listening) == sorted(pid for pid, _ in found)  # one socket per rank
    for _, connection in connections:
        for address in filter(None, (connection.laddr, connection.raddr)):
            assert ipaddress.ip_address(address.ip).is_loopback
    assert all(interface.startswith("lo") for _, interfaces in found for interface in interfaces)


@pytest.mark.slow
def test_importing_opens_no_socket():
    code = (
        "import sys, psutil, d2lite, d2lite.costs, d2lite.figures, d2lite.data; "
        "print(len(psutil.Process().net_connections('all')), len(psutil.Process().children()))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert out.stdout.split() == ["0", "0"]


def calls(path):
    """The calls in a file as (text of the function, call)."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_is_unpickled_but_between_a_notebook_and_its_ranks(path):
    in_workers = path.parent.name == "workers"
    for name, call in calls(path):
        options = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        if name == "torch.load":
            assert options.get("weights_only") == "True"
        assert options.get("allow_pickle", "False") == "False"
        assert name not in ("eval", "exec", "os.system") and options.get("shell", "False") == "False"
    text = path.read_text()
    imported = re.findall(r"(?m)^\s*(?:import|from)\s+(pickle|cloudpickle|dill|joblib|shelve|marshal)\b", text)
    connections = re.findall(r"(?m)^\s*(?:import|from)\s+multiprocessing\b", text)  # a Connection unpickles as well
    assert in_workers or not (imported or connections)


class Planted:
    """A pickle that makes a folder when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_checkpoint_runs_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    net = nn.Linear(2, 2)
    for write in (torch.save, lambda state, path: Path(path).write_bytes(pickle.dumps(state, protocol=2))):
        write({"net": Planted(tmp_path / "ran")}, tmp_path / "checkpoint.pt")
        with pytest.raises(pickle.UnpicklingError):
            load_checkpoint(str(tmp_path / "checkpoint.pt"), net, torch.optim.SGD(net.parameters()), None)
    assert not (tmp_path / "ran").exists()


def test_a_saved_run_has_what_the_page_says_and_no_more(tmp_path, monkeypatch):
    for name in ("USER", "LOGNAME", "HOSTNAME", "HOME", "SOME_TOKEN"):
        monkeypatch.setenv(name, "/unlikely")
    monkeypatch.setattr(platform, "node", lambda: "unlikely")
    devices = d2lite.describe(d2lite.try_gpus(2))
    run = Run(
        settings={"num_gpus": 2, "lr": 0.1},
        devices=devices,
        dataset="Fashion-MNIST",
        num_examples=100,
        losses=[1.0],
        accuracies=[0.5],
        seconds=[2.0],
        status="finished",
    )
    text = save([run], tmp_path / "run.json", "train").read_text()
    saved = json.loads(text)
    assert saved.keys() == {"schema", "saved", "function", "versions", "runs"}
    assert saved["versions"].keys() == {"d2lite", "system"} and saved["runs"][0]["versions"].keys() == {
        "python",
        "torch",
    }
    assert saved["runs"][0].keys() == {
        "label", "settings", "devices", "dataset", "num_examples", "losses", "accuracies", "seconds", "curves",
        "status", "other_programs", "versions", "seed", "test_accuracy", "seconds_per_epoch", "examples_per_s",
    }  # fmt: skip
    assert "unlikely" not in text and str(tmp_path) not in text and os.getcwd() not in text


def test_the_bounds_of_a_submission_are_those_on_the_page():
    mib, gib = 2**20, 2**30
    assert bounds.FOLDER_BYTES == 64 * mib and "in memory, of 64 MiB" in PAGE
    assert bounds.MEMORY_BYTES == 2 * gib and bounds.MEMORY_BYTES_OF_ALL == 4 * gib
    assert "2 GiB per process and 4 GiB in all, 100 processes" in PAGE and bounds.PROCESSES == 100
    assert bounds.FILE_BYTES == 16 * mib and "files of 16 MiB" in PAGE
    assert submitted_files.MOST_TOTAL == 40_000_000 and "more than 40 MB is refused" in PAGE
    assert FLAG == "--unsafe-no-sandbox" and FLAG in PAGE


def test_what_comes_back_of_a_submission_is_read_as_json():
    """The grader's own process loads no code of a submission: only the file that runs in the sandbox imports it."""
    files = [*(ROOT / "packages" / "d2lite_course" / "src" / "d2lite_course").glob("*.py")]
    assert len(files) > 10
    for path in files:
        names = [name for name, _ in calls(path)]
        loads = [
            name for name in names if name.startswith(("importlib.util.spec_from", "runpy", "compile", "__import__"))
        ]
        assert not loads or path.name in ("in_sandbox.py", "submitted_code.py"), path
        assert path.name == "in_sandbox.py" or "in_sandbox import" not in path.read_text(), path


def test_jupyter_keeps_its_token():
    make = ["make", "-n", "lab"]
    shown = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    (command,) = [line for line in shown if "jupyter lab" in line]
    assert "--ip=127.0.0.1" in command
    pages = ROOT / "README.md", ROOT / "docs" / "where-it-runs.md"
    for path in (ROOT / "Makefile", *pages, *ROOT.glob("book/*.ipynb"), *(ROOT / "tools").rglob("*.py")):
        text = path.read_text()
        assert not re.search(
            r"(ServerApp|NotebookApp|IdentityProvider)\.(token|password)|--no-auth|0\.0\.0\.0", text
        ), path
    flags = re.findall(r"--[\w.-]+", (ROOT / "Makefile").read_text().split("ROOT_FLAG :=")[1].splitlines()[0])
    assert flags == ["--allow-root"]


def test_the_page_is_linked():
    assert "docs/security.md" in (ROOT / "CONTRIBUTING.md").read_text()
    assert PAGE.startswith("# Security")


def test_a_ledger_is_json_of_bounded_size_and_off_writes_none(tmp_path, monkeypatch):
    path = tmp_path / "d2lite-ledger.json"
    path.write_text(" " * 5_000_001)
    with pytest.raises(ValueError, match="5,000,001 bytes"):
        read_ledger(path)
    path.unlink()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("D2LITE_LEDGER", "off")
    change("exercises", "1.2", lambda before: {"solved": True})
    assert not list(tmp_path.iterdir())
    monkeypatch.setenv("D2LITE_LEDGER", "")
    change("exercises", "1.2", lambda before: {"solved": True})
    assert json.loads(path.read_text())["exercises"]["1.2"]["solved"] is True
