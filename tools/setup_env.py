"""Make .venv ready for the book: the environment, its packages, and a stamp that says so.

make runs it before every target; by hand it is `python3 tools/setup_env.py`, on Windows `py tools\\setup_env.py`.
It needs the standard library only and runs on Python 3.6, so that an old Python gets a sentence instead of a
SyntaxError. What can be foreseen to fail ends in one line that says what to do. Stopped half-way, it goes on next time.
"""

import contextlib
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

__all__ = ["SetupError", "diagnose", "exit_status", "main", "run", "set_up"]

ROOT = Path(__file__).resolve().parent.parent
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# Free space asked for before a download: the peak of a set-up (CUDA builds: 9.1 GB, of which 6.3 GB stay), rounded up.
FREE_BYTES = {"cpu": 2e9, "cuda": 9.5e9, "keep": 0.5e9}
LOADS = "import torch, torchvision, jupyterlab, ipywidgets, plotly, anywidget; torchvision.ops.nms"
NETWORK_ERRORS = r"(NewConnection|NameResolution|ConnectTimeout|ReadTimeout|Proxy|SSL|Protocol)Error|IncompleteRead|"
NETWORK_ERRORS += r"[Rr]ead timed out|Network is unreachable|Connection (refused|reset|aborted)|getaddrinfo failed"
CAUSES = {
    r"No space left on device|not enough space on the disk|Disk quota exceeded": "the disk is full: free some space, "
    "or move the folder to a larger disk, and run it again",
    NETWORK_ERRORS: "pip cannot reach its package index: check the network (behind a proxy, set HTTPS_PROXY) and run "
    "it again; what is already here is kept",
    r"Permission denied|Read-only file system|Access is denied": "no permission to write: close running notebooks, "
    "make the folder yours, or clone it where you may write, and run it again",
    r"No matching distribution found for torch": "there is no build of this torch for this Python and machine: use a "
    "64-bit Python 3.12 (make lab PYTHON=python3.12, on Windows py -3.12) on Linux, Windows or an Apple-silicon Mac",
}


class SetupError(Exception):
    """A failure told in one line that says what to do."""


def diagnose(output):
    """The one line for what pip or the system said, or None when the cause is not a known one."""
    return next((line for pattern, line in CAUSES.items() if re.search(pattern, output)), None)


def check_python(version):
    if version[:2] < (3, 11):
        raise SetupError(
            "Python {}.{} is too old, d2lite needs 3.11 or newer: install one (python.org or your system's packages) "
            "and run make lab PYTHON=python3.12, on Windows py -3.12 tools\\setup_env.py".format(*version[:2])
        )


def check_venv_module(version, find=importlib.util.find_spec):
    if find("venv") is None or find("ensurepip") is None:
        raise SetupError(
            "this Python has no venv module: on Debian or Ubuntu run sudo apt install python{}.{}-venv, elsewhere "
            "install Python from python.org; then run it again".format(*version[:2])
        )


def check_writable(root):
    for folder in (root, root / ".venv"):
        if folder.exists() and not os.access(str(folder), os.W_OK):
            raise SetupError(f"no permission to write in {folder}: make it yours, or clone where you may write")


def check_disk(root, build, disk_usage=shutil.disk_usage):
    free, need = disk_usage(str(root)).free, FREE_BYTES[build]
    if free < need:
        raise SetupError(
            f"{root} has {free / 1e9:.1f} GB free and the set-up needs {need / 1e9:.1f} GB: free some space, or move "
            "the folder to a larger disk, and run it again"
        )


def has_nvidia_gpu():
    return any(map(os.path.exists, ("/proc/driver/nvidia/version", "/dev/nvidia0"))) or bool(shutil.which("nvidia-smi"))


def answers(url, timeout_s=3.0):
    """Whether the page at url comes within timeout_s, name look-up included."""
    found = []

    def probe():
        with contextlib.suppress(OSError, ValueError), urllib.request.urlopen(url, timeout=timeout_s) as page:
            found.append(page.read(1))

    thread = threading.Thread(target=probe, daemon=True)
    thread.start()
    thread.join(timeout_s)
    return found not in ([], [b""])


def choose_torch(wanted, installed, system, has_gpu=has_nvidia_gpu, probe=answers):
    """Which builds of torch and torchvision to take, and why: ("cpu" | "cuda" | "keep", reason).

    On Linux "cpu" comes from PyTorch's CPU index and "cuda" is what pip's own index has; on macOS and Windows that has
    CPU builds. installed is .venv's torch if it is the pinned one.
    """
    if wanted not in ("", "cpu", "cuda"):
        raise SetupError(f"TORCH={wanted} is not known: say TORCH=cpu or TORCH=cuda, or leave it out")
    if wanted == "cuda" and system != "Linux":
        raise SetupError(f"TORCH=cuda works on Linux only: on {system} leave it out, then see pytorch.org/get-started")
    if wanted:
        return wanted, f"TORCH={wanted} says so"
    if installed:
        return "keep", f"torch {installed} is in .venv already"
    if system != "Linux":
        return "cpu", f"the usual ones on {system}"
    if has_gpu():
        return "cuda", "there is an NVIDIA GPU"
    if probe(CPU_INDEX + "/torch/"):
        return "cpu", "there is no NVIDIA GPU, and PyTorch's CPU index answers"
    return "cuda", "no NVIDIA GPU, but PyTorch's CPU index did not answer within 3 s"


def python_of(env):
    return env / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def packages_of(env):
    """The packages in env as {"name-version": whether it was written to its end}."""
    folders = [*env.glob("lib/python*/site-packages/*.dist-info"), *env.glob("Lib/site-packages/*.dist-info")]
    return {folder.name[: -len(".dist-info")]: (folder / "RECORD").exists() for folder in folders}


def installed_torch(env, pins):
    """The version of torch in env if it is one of the pinned ones, else ""."""
    pinned = ["torch-" + re.split(r"==|;", pin)[1].strip() for pin in pins]
    return next((name[len("torch-") :] for name in packages_of(env) if name.split("+")[0] in pinned), "")


def usable(env, version):
    """Whether env is an environment of this Python, with a pip and no half-written package."""
    if not python_of(env).exists() or not all(packages_of(env).values()):
        return False
    status, output = run([str(python_of(env)), "-c", "import sys, pip; print(*sys.version_info[:2])"])
    return status == 0 and output.split() == [str(n) for n in version[:2]]


def run(command, cwd=None, env=None, say=lambda line: None):
    """Run command to its end; its exit status and all it wrote. say is told each line."""
    lines = []
    with subprocess.Popen(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            for raw in process.stdout:
                lines.append(raw.decode("utf-8", "replace").rstrip())
                say(lines[-1])
        except BaseException:
            process.kill()
            raise
    return process.returncode, "\n".join(lines)


def fail_unless(fine, output, what):
    """SetupError in one line unless fine; the end of an output without a known cause is shown before it."""
    if not fine and diagnose(output):
        raise SetupError(diagnose(output))
    if not fine:
        print("\n".join(output.splitlines()[-15:]))
        raise SetupError(f"{what} failed, see above: if that does not help, delete .venv and run it again")


def pip_install(env, root, arguments, say):
    """pip install in env, telling of the large downloads only."""
    temporary = env / "tmp"  # on the disk that was checked; /tmp may be a small one
    temporary.mkdir(exist_ok=True)
    variables = dict(os.environ, PYTHONUNBUFFERED="1", PYTHONIOENCODING="utf-8", PIP_USER="0", TMPDIR=str(temporary))

    def show(line):
        if re.match(r"\s*(Downloading .*\(\d{2,}.*[MG]B\)|Installing collected)", line):
            say("  " + line.strip()[:90])

    pip = [str(python_of(env)), "-m", "pip", "install", "--no-input", "--retries=3", "--disable-pip-version-check"]
    status, output = run(pip + arguments, str(root), variables, show)
    shutil.rmtree(str(temporary), ignore_errors=True)
    fail_unless(status == 0, output, "pip")


def install(env, root, build, insisted, pins, say):
    """Install everything; the build of torch that was taken in the end."""
    if build == "cpu" and platform.system() == "Linux":
        try:
            pip_install(env, root, ["--index-url", CPU_INDEX] + pins, say)
        except SetupError as error:
            if insisted:
                raise
            say(f"torch: the cuda builds after all; from PyTorch's CPU index: {error}")
            check_disk(root, "cuda")
            build = "cuda"
    pip_install(env, root, ["-r", "requirements.txt"], say)
    return build


def set_up(root=ROOT, environ=os.environ, say=print):
    """Bring root/.venv up to date; returns at once when its stamp says that it is."""
    started, system, version = time.time(), platform.system(), sys.version_info
    env, wanted = root / ".venv", environ.get("TORCH", "").strip().lower()
    requirements = (root / "requirements.txt").read_text(encoding="utf-8")
    inputs = repr(version[:2]) + requirements + (root / "pyproject.toml").read_text(encoding="utf-8")
    key, stamp = hashlib.sha256(inputs.encode()).hexdigest(), env / ".d2lite-stamp"
    old = stamp.read_text().split() if stamp.exists() and python_of(env).exists() else []
    if old and old[0] == key and wanted in ("", old[-1]):
        return
    check_writable(root)
    pins = re.findall(r"^torch(?:vision)?==[^#\n]*", requirements, re.M)
    whole = usable(env, version)
    installed = installed_torch(env, pins) if whole else ""
    present = "cpu" if "+cpu" in installed or system != "Linux" else "cuda"
    build, why = choose_torch(wanted, installed, system)
    if installed and build == present:
        build = "keep"
    check_disk(root, build)
    say(f"torch: {'kept' if build == 'keep' else 'the ' + build + ' builds'}, {why}")
    stamp.parent.mkdir(exist_ok=True)
    stamp.write_text("unfinished")

    if not whole or (installed and build != "keep"):
        check_venv_module(version)
        status, output = run([sys.executable, "-m", "venv", "--clear", str(env)])
        fail_unless(status == 0, output, "python -m venv")
    build = install(env, root, build, wanted, pins, say)
    status, output = run([str(python_of(env)), "-c", LOADS])
    fail_unless(status == 0, output, "loading the packages")
    stamp.write_text(f"{key} {present if build == 'keep' else build}\n")
    say(f"set-up done in {time.time() - started:.0f} s")


def exit_status(name, work, stopped="stopped; run it again"):
    """Call work; 0, or 1 after one line on stderr that says what failed. stopped is the line for Ctrl+C."""
    try:
        work()
        return 0
    except (SetupError, OSError, subprocess.CalledProcessError) as error:
        line = diagnose(str(error)) or str(error)
    except KeyboardInterrupt:
        line = stopped
    print(f"d2lite {name}: {line}", file=sys.stderr)
    return 1


def main():
    def work():
        check_python(sys.version_info)
        set_up()

    return exit_status("set-up", work, "stopped; run it again and it goes on from here")


if __name__ == "__main__":
    sys.exit(main())
