"""Install accelerate and Lightning into .frameworks, once: make frameworks runs this before their test.

The environment is their own, so that the book needs neither. torch and the rest come from .venv through a .pth file,
without a second download. A stamp names all that was put in, so that the next call returns at once.
"""

import os
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

from setup_env import SetupError, diagnose, exit_status, run

__all__ = ["build", "main"]

ROOT = Path(__file__).resolve().parent.parent
FRAMEWORKS = ["accelerate==1.15.0", "lightning==2.6.6"]


def build(root=ROOT, say=print):
    """Make root/.frameworks, unless its stamp says that it is there for this torch and this Python."""
    env = root / ".frameworks"
    python, stamp = env / "bin" / "python", env / ".d2lite-stamp"
    key = "\n".join([*FRAMEWORKS, version("torch"), sys.version, str(root)])
    if stamp.exists() and stamp.read_text() == key:
        return
    say("installing " + " and ".join(FRAMEWORKS))
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(env)], check=True)
    (env / ".gitignore").write_text("*\n")
    library = next(env.glob("lib/python*/site-packages"))
    ours = sysconfig.get_paths()["purelib"]
    (library / "d2lite_venv.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    # pip sees torch through the .pth file, and the constraint keeps it from taking another one
    (env / "constraints.txt").write_text(f"torch=={version('torch')}\n")
    pip = [str(python), "-m", "pip", "--no-input", "--retries=3", "--disable-pip-version-check", "install"]
    status, output = run([*pip, "-c", str(env / "constraints.txt"), *FRAMEWORKS], env={**os.environ, "PIP_USER": "0"})
    if status != 0:
        print("\n".join(output.splitlines()[-15:]))
        raise SetupError(diagnose(output) or "pip failed, see above")
    stamp.write_text(key)


def main():
    return exit_status("frameworks", build)


if __name__ == "__main__":
    sys.exit(main())
