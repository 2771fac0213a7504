"""Build the environment of binder/ in a folder by the steps of repo2docker, and measure the book in it.

`make binder` runs it. repo2docker takes its Python buildpack for `binder/`: the Python of runtime.txt with Jupyter's
packages, `pip install --no-cache-dir -r binder/requirements.txt` in the root of the repository, `postBuild`, and
`start` before the server. Here the same steps run without Docker and without conda: a copy of the Python on this
machine, and pip, stand for repo2docker's base environment. As root, all steps run as an unprivileged user whose
home holds the repository alone, and the measurements without a network.

PyTorch's CPU builds come from PyTorch's own index. Where it does not answer, `--pins torch==VERSION ...` replaces the
builds of torch and torchvision, and the record says so.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import psutil

from benchmarks.report import Row, save, table
from tools.setup_env import CPU_INDEX, SetupError, answers, exit_status

__all__ = ["BASE", "MEASURED", "Room", "copy_repository", "main", "python_version", "replace_pins"]

ROOT = Path(__file__).resolve().parent.parent
BINDER = ROOT / "binder"
# of repo2docker's environment.py-3.12.yml; nodejs, which the book does not use, is left out
BASE = ["ipywidgets==8.*", "jupyter-offlinenotebook==0.3.*", "jupyter-resource-usage==1.*", "jupyter_server==2.*"]
BASE += ["jupyterhub==5.*", "jupyterlab==4.*", "notebook==7.*"]
CHAPTERS = sorted(path.name[:2] for path in (ROOT / "book").glob("[0-9][0-9]-*.ipynb"))
MEASURED = ("server", "page", *CHAPTERS)  # page: the index in a browser
USER = 1000  # repo2docker's user and group
_MEASURE = """
import json, sys
from dataclasses import asdict
from benchmarks import chapters, page, report
what, path = sys.argv[1:]
facts = report.machine()
found = page.rows() if what == "page" else chapters.rows(pattern=what)  # the server is no chapter: none
with open(path, "w") as file:
    json.dump([facts, [asdict(row) for row in found]], file)
"""
_ASK = """
import sys, time, urllib.request
url, seconds = sys.argv[1], float(sys.argv[2])
end = time.monotonic() + seconds
while time.monotonic() < end:
    try:
        urllib.request.urlopen(url, timeout=5)
    except OSError:
        time.sleep(0.05)
    else:
        sys.exit(0)
sys.exit(1)
"""


class Room:
    """A folder with a home, a copy of the repository and an environment, and commands that run there as the user."""

    def __init__(self, folder):
        self.folder, self.home = folder, folder / "home"
        self.python, self.env = folder / "srv" / "python", folder / "srv" / "notebook"
        self.is_root = os.name == "posix" and os.geteuid() == 0
        self.isolated = self.is_root and shutil.which("unshare") is not None and shutil.which("ip") is not None

    def variables(self):
        """The environment of the image: nothing of ours but pip's settings and the proxy."""
        dropped = r"PYTHON|D2LITE|VIRTUAL_ENV|XDG_|JUPYTER|IPYTHON|MALLOC|MAKE|MFLAGS|PIP_USER|PIP_CACHE"
        kept = {name: value for name, value in os.environ.items() if not re.match(dropped, name)}
        path = os.pathsep.join([str(self.env / "bin"), "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"])
        own = {"HOME": str(self.home), "USER": "jovyan", "LOGNAME": "jovyan", "SHELL": "/bin/bash", "PATH": path}
        # the copied Python may name its former place, which is closed to the user, as that of its library
        return kept | own | {"PYTHONUNBUFFERED": "1", "LD_LIBRARY_PATH": str(self.python / "lib")}

    def popen(self, command, network=True, **options):
        """Start a command in the copy of the repository, as the user; without `network` it has loopback alone."""
        command = list(map(str, command))
        if not network and self.isolated:
            user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *command]
            command = ["unshare", "-n", "sh", "-c", f"ip link set lo up && exec {shlex.join(user)}"]
        elif self.is_root:
            options |= {"user": USER, "group": USER, "extra_groups": []}
        return subprocess.Popen(command, cwd=self.home, env=self.variables(), **options)

    def run(self, command, network=True):
        """Run a command to its end; SetupError with the end of its output if it fails. Return the seconds."""
        print("$", *("..." if "\n" in str(word) else shlex.quote(str(word)) for word in command), flush=True)
        start = time.perf_counter()
        with self.popen(command, network, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            output = process.communicate()[0]
        if process.returncode:
            print("\n".join(output.splitlines()[-25:]))
            raise SetupError(f"{command[0]} failed with exit status {process.returncode}, see above")
        return time.perf_counter() - start

    def own(self):
        """Give the folder to the user, and open the way to it."""
        if self.is_root:
            self.folder.chmod(0o755)
            for path in [self.folder, *self.folder.rglob("*")]:
                os.chown(path, USER, USER, follow_symlinks=False)


def python_version():
    """Return the Python of binder/runtime.txt, such as "3.12"."""
    return (BINDER / "runtime.txt").read_text().strip().removeprefix("python-")


def find_python(version):
    """Return the folder of an installed Python of this version; SetupError if there is none."""
    named = [shutil.which(f"python{version}"), *Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")]
    for python in filter(None, [sys.executable, *named]):
        ask = [str(python), "-c", "import sys; print('%d.%d' % sys.version_info[:2]); print(sys.base_prefix)"]
        found = subprocess.run(ask, capture_output=True, text=True).stdout.split()
        if found[:1] == [version]:
            return Path(found[1])
    raise SetupError(f"binder/runtime.txt asks for Python {version}, which is not installed here: install it")


def copy_repository(target):
    """Copy the files that git tracks, and new ones that it does not ignore: what repo2docker gets from a clone."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0"):
        source = ROOT / name
        if name and source.is_file() and not source.is_symlink():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)


def replace_pins(repository, pins):
    """Take `pins` in place of torch, torchvision and PyTorch's index in both requirements files of a copy."""
    for path in (repository / "requirements.txt", repository / "binder" / "requirements.txt"):
        lines = path.read_text().splitlines()
        kept = [line for line in lines if not re.match(r"torch(vision)?==|--extra-index-url", line)]
        path.write_text("\n".join([*pins, *kept]) + "\n")


def build(room, version, pins):
    """Carry out repo2docker's steps; return the rows of the build."""
    copy_repository(room.home)
    if pins:
        replace_pins(room.home, pins)
    # the home directory in which this Python may lie can be closed to the user
    shutil.copytree(
        find_python(version), room.python, symlinks=True, ignore=shutil.ignore_patterns("test", "site-packages", "*.a")
    )
    room.own()
    base = room.run([room.python / "bin" / f"python{version}", "-m", "venv", room.env])
    pip = [room.env / "bin" / "pip", "install", "--no-cache-dir", "--quiet", "--disable-pip-version-check"]
    base += room.run([*pip, *BASE])
    size = size_of(room.folder / "srv")
    seconds = room.run([*pip, "-r", "binder/requirements.txt"])
    seconds += room.run(["binder/postBuild"])
    return [
        Row("base environment, from Python and pip", "s", [base]),
        Row("base environment, size", "MB", [size / 1e6]),
        Row("binder/requirements.txt and postBuild", "s", [seconds]),
        Row("the whole environment, size", "MB", [size_of(room.folder / "srv") / 1e6]),
        Row("the repository, size", "MB", [size_of(room.home) / 1e6]),
    ]


def size_of(folder):
    """Return the bytes of all files below a folder, a file with several names once."""
    files = [path.lstat() for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return sum({(found.st_dev, found.st_ino): found.st_size for found in files}.values())


@contextmanager
def server(room):
    """Start JupyterLab behind binder/start, and end it; hands out the seconds until it asked for its token."""
    port, log = 18_888, room.folder / "server.txt"
    arguments = ["--no-browser", "--ip=127.0.0.1", f"--port={port}"]
    # the server and the one who asks are in the same network, which has loopback alone
    ask = [room.env / "bin" / "python", "-c", _ASK, f"http://127.0.0.1:{port}/lab", "120"]
    both = f"binder/start jupyter lab {shlex.join(arguments)} & {shlex.join(map(str, ask))} && : > up && wait"
    start = time.perf_counter()
    with open(log, "w") as out:
        process = room.popen(["bash", "-c", both], network=False, stdout=out, stderr=out)
    try:
        while not (room.home / "up").exists():
            if process.poll() is not None or time.perf_counter() - start > 130:
                raise SetupError(f"the server did not come up:\n{log.read_text()[-2000:]}")
            time.sleep(0.02)
        yield time.perf_counter() - start, psutil.Process(process.pid)
    finally:
        family = [*psutil.Process(process.pid).children(recursive=True), process]
        for member in family:
            member.terminate()
        process.wait(30)
        (room.home / "up").unlink(missing_ok=True)


def start_server(room, n=3):
    """Return the rows of the server's start and memory, from `n` starts."""
    seconds, memory = [], []
    for _ in range(n):
        with server(room) as (waited, process):
            seconds.append(waited)
            memory.append(sum(p.memory_full_info().pss for p in process.children(recursive=True)) / 1e6)
    return [
        Row("binder/start jupyter lab, until it asks for its token", "s", seconds),
        Row("the server without a kernel, memory", "MB", memory),
    ]


def measure(room, what):
    """Measure one of MEASURED in the environment, without a network; return its facts and rows, which stay there."""
    kept = room.folder / f"{what}.json"
    if not kept.exists():
        room.run(["binder/start", "python", "-c", _MEASURE, what, f"../new-{what}.json"], network=False)
        facts, rows = json.loads((room.folder / f"new-{what}.json").read_text())
        rows += map(asdict, start_server(room)) if what == "server" else []
        kept.write_text(json.dumps([facts, rows]))
    facts, rows = json.loads(kept.read_text())
    found = [Row(**row) for row in rows]
    if any(row.skipped for row in found):
        kept.unlink()  # the next run tries again
    print(*(" ".join(row.cells()[:2]) for row in found), sep=", ", flush=True)
    return facts, found


def main(argv=None):
    args = _parse(argv)
    return exit_status("binder", lambda: _work(args, argv))


def _work(args, argv):
    version = args.python or python_version()
    if not args.pins and not answers(CPU_INDEX + "/torch/"):
        raise SetupError(
            f"{CPU_INDEX} does not answer, and binder/requirements.txt takes torch from there: check the network, or "
            'try other builds with make binder ARGS="--pins torch==VERSION torchvision==VERSION"'
        )
    with _folder(args.folder) as folder:
        room, kept = Room(folder), folder / "build.json"
        if not kept.exists():
            room.home.mkdir(parents=True)
            kept.write_text(json.dumps([asdict(row) for row in build(room, version, args.pins)]))
        rows = [Row(**row) for row in json.loads(kept.read_text())]
        measured = [measure(room, what) for what in args.only]
    facts, found = measured[-1][0], [row for _, some in measured for row in some]
    facts["torch taken"] = "in place of binder's: " + " ".join(args.pins) if args.pins else "as binder/ says"
    facts["user"] = f"unprivileged ({USER}), home with the repository alone" if room.is_root else "the one who ran it"
    facts["network"] = "none but loopback after the build" if room.isolated else "as it was"
    facts["not run"] = "on mybinder.org"
    print(table(facts, rows + found))
    if args.save:
        words = ["FOLDER" if word == str(args.folder) else word for word in (sys.argv[1:] if argv is None else argv)]
        command = shlex.join(["python", "-m", "tools.build_binder", *words])
        print(save(args.save, command, facts, rows + found))


@contextmanager
def _folder(given):
    """The folder that was given, which stays with its environment; else a temporary one."""
    if given is not None:
        yield given.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="d2lite-binder-") as folder:
        yield Path(folder)


def _parse(argv):
    parser = argparse.ArgumentParser(prog="python -m tools.build_binder", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=MEASURED, default=MEASURED, help="what to measure")
    parser.add_argument("--python", metavar="VERSION", help="in place of the one in binder/runtime.txt")
    parser.add_argument("--pins", nargs="+", metavar="PIN", help="in place of binder's torch and torchvision")
    parser.add_argument(
        "--folder", type=Path, help="build here, or go on with what was built here; a temporary folder if left out"
    )
    parser.add_argument("--save", metavar="NAME", help="keep the figures in benchmarks/results/NAME.json and .md")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
