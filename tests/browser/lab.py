"""JupyterLab on a free port, with settings of its own; all of it is gone afterwards."""

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tools.cluster.hosts import free_port
from tools.local_server import is_up

__all__ = ["ARGUMENTS", "CHROMIUM", "ROOT", "Lab", "serving"]

ROOT = Path(__file__).parents[2]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SETTINGS = {
    "apputils-extension/notification": '{"fetchNews": "false", "checkForUpdates": false}',
    "apputils-extension/themes": '{"theme": "JupyterLab %s"}',
    "notebook-extension/tracker": '{"windowingMode": "none"}',  # cells out of sight stay on the page
}


# of Chromium, without a window
ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]


@dataclass
class Lab:
    """A JupyterLab server: its address, its token and the folder it serves."""

    url: str
    token: str
    folder: Path
    settings: Path
    pid: int

    def theme(self, name):
        """Choose "Light" or "Dark" for pages opened from now on."""
        for path, text in SETTINGS.items():
            file = self.settings / "@jupyterlab" / f"{path}.jupyterlab-settings"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text % name if "%" in text else text)


@contextmanager
def serving(folder: Path, home: Path) -> Iterator[Lab]:
    """Serve `folder`, with settings in `home`; the server and its kernels are ended in every case."""
    token = secrets.token_hex(16)
    own = ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR")
    env = os.environ | {name: str(home / name) for name in (*own, "IPYTHONDIR")}
    env.pop("D2LITE_LEDGER", None)  # next to the notebook, as a learner has it
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1"]
    command += [f"--IdentityProvider.token={token}", "--ServerApp.port_retries=0"]
    log, server = home / "log.txt", None
    try:
        for is_last in (False, False, True):  # between the choice of a port and its use another server may take it
            port = free_port()
            with open(log, "w") as out:
                arguments = [*command, f"--port={port}", str(folder)]
                server = subprocess.Popen(arguments, env=env, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
            lab = Lab(f"http://127.0.0.1:{port}", token, folder, home / "JUPYTERLAB_SETTINGS_DIR", server.pid)
            lab.theme("Light")
            if is_up(server, f"{lab.url}/api/status?token={token}"):
                break
            end_with_children(server)
            if is_last or "already in use" not in log.read_text():
                raise RuntimeError(f"JupyterLab did not come up:\n{log.read_text()[-2000:]}")
        yield lab
    finally:
        if server is not None:
            end_with_children(server)


def end_with_children(server):
    """End a process and all it has started: kernels have process groups of their own."""
    try:
        family = [*psutil.Process(server.pid).children(recursive=True), psutil.Process(server.pid)]
    except psutil.NoSuchProcess:
        family = []
    server.terminate()
    try:
        server.wait(15)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    for process in family:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            pass
    _, left = psutil.wait_procs(family, timeout=20)
    assert not left, f"still there: {left}"
