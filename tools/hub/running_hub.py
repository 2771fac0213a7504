"""A hub that runs as long as a `with` block, and nothing of it afterwards."""

import json
import re
import secrets
import shutil
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from d2lite import copy_book
from tools.cluster.hosts import free_port
from tools.hub.install import PROXY, ROOT, python
from tools.local_server import is_up

__all__ = ["Hub", "make_folders", "running_hub"]

END_S = 60  # the hub ends the servers, each with its kernels, one after another


@dataclass
class Hub:
    """A hub that runs: its address, the password of all learners, its process, and a program's token, if it has one."""

    url: str
    password: str
    pid: int
    token: str

    def call(self, path, method="GET"):
        """Return what the hub's API answers, such as call("users/ada") or call("users/ada/server", "POST")."""
        headers = {"Authorization": f"token {self.token}"}
        request = urllib.request.Request(f"{self.url}/hub/api/{path}", headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=180) as answer:
            return json.loads(answer.read() or "{}")


def make_folders(learners, folder, book=None):
    """Give each learner a copy of the book, or of the folder `book`, in `folder`/learners; keep what is there.

    Raises ValueError for a name that is none of lower case letters, digits, "-" and "_".
    """
    for name in learners:
        if not re.fullmatch(r"[a-z][a-z0-9_-]{0,31}", name):
            raise ValueError(
                f"learners: expected names of lower case letters, digits, - and _, a letter first, got {name!r}."
            )
        goal = folder / "learners" / name
        half = goal.with_name(f".{name}")  # what a stopped copy leaves
        if goal.exists():
            continue
        shutil.rmtree(half, ignore_errors=True)
        if book is None:
            copy_book(half)
        else:
            shutil.copytree(book, half)
        half.rename(goal)


@contextmanager
def running_hub(learners, folder, port=0, book=None, most_servers=0, token="", idle_server_s=3600, idle_kernel_s=1800):
    """Start a hub for these learners, hand it out once it answers, and end all of its processes in every case.

    Args:
        folder: it holds the learners' folders, the password, and the log of the last start.
        port: of the address for learners; 0 means a free one.
        book: a folder that each learner gets a copy of, with `book/index.ipynb` in it; None means the book.
        most_servers: how many may run at a time; 0 means all.
        token: with it, a program may start and stop servers over the hub's API.
        idle_server_s, idle_kernel_s: after so many seconds without activity a server, a kernel is ended.

    Raises:
        RuntimeError: if it does not come up, with the end of the log.
    """
    folder = Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    make_folders(learners, folder, book)
    settings = {"learners": list(learners), "password": _password(folder / "password"), "most_servers": most_servers}
    ports = [port or free_port(), free_port(), free_port()]
    settings |= dict(zip(("port", "hub_port", "proxy_port"), ports, strict=True))
    settings |= {"root": str(ROOT), "python": sys.executable, "proxy": str(PROXY), "token": token}
    settings |= {"idle_server_s": idle_server_s, "idle_kernel_s": idle_kernel_s}
    _write_private(folder / "settings.json", json.dumps(settings, indent=1))
    url, log = f"http://127.0.0.1:{ports[0]}", folder / "log.txt"
    config = ROOT / "tools" / "hub" / "jupyterhub_config.py"
    with open(log, "w") as out:
        process = subprocess.Popen(
            [python(), "-m", "jupyterhub", f"--config={config}"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,  # Ctrl-C in the terminal reaches this program alone, which then ends the hub
        )
    try:
        if not is_up(process, f"{url}/hub/health"):
            raise RuntimeError(f"the hub did not come up; the end of {log}:\n{log.read_text()[-2000:]}")
        yield Hub(url, settings["password"], process.pid, token)
    finally:
        _end(process)


def _password(path):
    """The password of all learners, drawn once."""
    if not path.exists():
        _write_private(path, secrets.token_urlsafe(9))
    return path.read_text()


def _write_private(path, text):
    path.touch(mode=0o600)
    path.write_text(text)


def _end(process):
    """Ask the hub to end with all servers and the proxy; kill what is still there after that."""
    try:
        family = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        family = []
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    _, left = psutil.wait_procs(family, timeout=5)
    for member in left:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            pass
    psutil.wait_procs(left, timeout=10)
