"""JupyterHub and its proxy in an environment of their own, below .bench; .venv stays as it is."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["HOME", "PROXY", "install", "installed", "python"]

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".bench" / "hub"
PACKAGES = ("jupyterhub==6.1.1", "jupyterhub-idle-culler==2.0.0")
NODE_PACKAGE = "configurable-http-proxy@5.3.0"
PROXY = HOME / "node_modules" / ".bin" / "configurable-http-proxy"
STAMP = HOME / "installed"


def python():
    """Return the Python of the environment."""
    return HOME / "bin" / "python"


def installed():
    """Return whether all that is needed is there, in these versions."""
    wanted = "\n".join((*PACKAGES, NODE_PACKAGE))
    return PROXY.exists() and STAMP.exists() and STAMP.read_text() == wanted and shutil.which("node") is not None


def install():
    """Install what is missing; raise RuntimeError with what to do where that is not possible."""
    if os.name == "nt":
        raise RuntimeError("expected Linux or macOS, got Windows, where JupyterHub does not run. Use WSL 2.")
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise RuntimeError(
                f"expected {program}, which JupyterHub's proxy needs, got none on the PATH. "
                "On Debian or Ubuntu: sudo apt install nodejs npm"
            )
    if installed():
        return
    print(f"installing {', '.join((*PACKAGES, NODE_PACKAGE))} into {HOME}, once", flush=True)
    _run([sys.executable, "-m", "venv", "--clear", HOME])
    (HOME.parent / ".gitignore").write_text("*\n")  # it ignores itself
    _run([python(), "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", *PACKAGES])
    _run(["npm", "install", "--silent", "--no-fund", "--no-audit", "--prefix", HOME, NODE_PACKAGE])
    STAMP.write_text("\n".join((*PACKAGES, NODE_PACKAGE)))


def _run(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise RuntimeError(f"{' '.join(map(str, command))} failed: {said[-1] if said else 'it said nothing'}")
