"""A sandbox for a submission: no network, no files but Python and these packages, nothing to write but a small folder.

It is made by bubblewrap (`bwrap`) if that is installed, else by `unshare` of util-linux; both use the namespaces of
Linux. Its first process (number 1) is ours, so that no other one in it can stop or end that one. Whoever runs the
grader as root has each submission run as a user without a name. `find_sandbox` tries them out.
"""

import contextlib
import functools
import importlib.util
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from d2lite.book import book_root, find_in_book
from d2lite_course.bounds import FOLDER_BYTES

__all__ = ["Sandbox", "find_sandbox", "no_sandbox", "writable_folder"]

USERS = [*range(65100, 65500)]  # without names: the bound of processes counts those of one user on the whole machine
_next_user = itertools.count(os.getpid())
OUR_PACKAGES = [
    Path(str(importlib.util.find_spec(name).origin)).resolve().parent  # type: ignore[union-attr]
    for name in ("d2lite", "notebook_ranks", "ddp_rehearsal", "d2lite_course")
]
PACKAGE = OUR_PACKAGES[0]
LABS = "/book/labs"  # inside: d2lite.labs looks for this folder above the working directory
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives")
DEVICE_FILES = ("null", "full", "random", "urandom")  # a shared mapping of "zero" is memory that nobody counts
NEEDED = ("torch", "numpy", "cloudpickle")
# a process in the sandbox prints "alone" if nothing of the outside can be reached or written
PROBE = """
import os, socket
addresses = ("192.0.2.1", 9), ("127.0.0.1", {port})
ways_out = [address for address in addresses if socket.socket().connect_ex(address) == 0]
seen = [path for path in ({hidden!r}, "/root/.ssh", "/home", "/var/log") if os.path.exists(path)]
written = [path for path in ("/", "/usr", {package!r}) if os.access(path, os.W_OK)]
open("{folder}/probe", "w").close()
import numpy
print("alone" if not ways_out and not seen and not written and os.getpid() == 1 else [ways_out, seen, written])
"""
SCRIPT = r"""set -e
root=$1; folder=$2; bytes=$3; python=$4; shift 4
mount -t tmpfs -o mode=755,size=1m tmpfs "$root"
while [ "$1" != -- ]; do
    if [ "$2" = hide ] || [ -d "$2" ]; then mkdir -p "$root$1"
    else mkdir -p "$(dirname "$root$1")"; touch "$root$1"; fi
    if [ "$2" = hide ]; then mount -t tmpfs -o ro tmpfs "$root$1"
    else mount --bind "$2" "$root$1"; mount -o "remount,bind,nosuid,$3" "$root$1"; fi
    shift 3
done
shift
mkdir -p "$root/proc" "$root/dev/shm" "$root$folder"
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
ln -s /proc/self/fd "$root/dev/fd"
mount -t tmpfs -o "mode=1777,nosuid,nodev,size=$bytes" tmpfs "$root/dev/shm"
mount -t tmpfs -o "mode=1777,nosuid,nodev,size=$bytes" tmpfs "$root$folder"
"$python" -I -S -c 'import fcntl, socket, struct
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh22x", b"lo", 0x49))'
mount -o remount,bind,ro "$root"
cd "$root"
pivot_root . .
umount -l .
cd "$folder"
exec "$@"
"""


@dataclass(frozen=True)
class Sandbox:
    """A way to run Python; `name` says which, and `is_alone` whether it is separated from the machine.

    `hidden` are folders of the machine that are not seen inside, wherever they are.
    """

    name: str
    is_alone: bool
    hidden: tuple[str, ...] = ()

    def command(self, root: str, arguments: Sequence[str]) -> list[str]:
        """Return the command that runs Python with arguments; `root` is an empty folder outside."""
        python = [sys.executable, "-I", *arguments]
        if self.name == "bubblewrap":
            return _bubblewrap(_hidden(self.hidden), python)
        return _unshare(root, _hidden(self.hidden), python) if self.name == "unshare" else python

    def environment(self, root: str) -> dict[str, str]:
        """Return the environment variables of the process: none of the teacher's."""
        folder = writable_folder() if self.is_alone else root
        kept = {
            "HOME": folder,
            "TMPDIR": folder,
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "USER": "nobody",
        }
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        ours = {"D2LITE_LEDGER": "off", "D2LITE_OFFLINE": "1", "GLOO_SOCKET_IFNAME": "lo", "MALLOC_ARENA_MAX": "1"}
        return kept | threads | ours | {"PYTHONDONTWRITEBYTECODE": "1", "CUDA_VISIBLE_DEVICES": ""}


def no_sandbox() -> Sandbox:
    """Return what runs a submission with all rights of the teacher, in limits of time and memory alone."""
    return Sandbox("none", False)


def package_folders() -> list[str]:
    """Return the folders in which Python finds the packages inside."""
    return list(dict.fromkeys(str(package.parent) for package in OUR_PACKAGES))


def module_runner(module: str) -> list[str]:
    """Return the arguments with which Python runs `main` of a module of this package."""
    code = f"import sys; sys.path[:0] = {package_folders()!r}; from {module} import main; main()"
    return ["-c", code]


@functools.cache
def find_sandbox() -> tuple[Sandbox | None, str]:
    """Return a sandbox that works here, tried out, and "" - or None, and why there is none."""
    if sys.platform != "linux":
        return None, "the sandbox needs Linux"
    reasons = []
    for name, program in (("bubblewrap", "bwrap"), ("unshare", "unshare")):
        if shutil.which(program) is None:
            reasons.append(f"{program} is not installed")
            continue
        why = _tried(Sandbox(name, True))
        if not why:
            return Sandbox(name, True), ""
        reasons.append(f"{program} does not work here: {why}")
    return None, "; ".join(reasons)


def _tried(sandbox: Sandbox) -> str:
    """Return why a sandbox does not work, or ""."""
    import socket
    import tempfile

    with tempfile.TemporaryDirectory() as root, socket.create_server(("127.0.0.1", 0)) as server:
        code = PROBE.format(port=server.getsockname()[1], hidden=root, package=str(PACKAGE), folder=writable_folder())
        try:
            done = subprocess.run(
                sandbox.command(root, ["-c", code]),
                env=sandbox.environment(root),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=60,
            )
        except (OSError, subprocess.SubprocessError) as error:
            return f"{error}"[:200]
    if done.stdout.strip() == "alone":
        return ""
    return (done.stderr.strip().splitlines() or [done.stdout.strip() or f"exit code {done.returncode}"])[-1][:200]


@functools.cache
def _visible_paths() -> tuple[tuple[str, str], ...]:
    """Return what is seen inside, read only, as (path inside, path outside); links of the system stay links."""
    found = {path: path for path in SYSTEM if os.path.exists(path)}
    for folder in (sys.base_prefix, sys.prefix, os.path.dirname(os.path.dirname(sys.executable))):
        found[folder] = os.path.realpath(folder)
    for module in NEEDED:
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.origin:
            folder = str(Path(spec.origin).parents[1])
            found[folder] = os.path.realpath(folder)
    found |= {str(package): str(package) for package in OUR_PACKAGES}
    found[LABS] = str(find_in_book("book/labs"))
    paths = sorted(found)
    inside = {
        p
        for p in paths
        for q in paths
        if p != q and found[p].startswith(found[q] + os.sep) and p.startswith(q + os.sep)
    }
    return tuple((path, found[path]) for path in paths if path not in inside)


def writable_folder() -> str:
    """Return the only folder that can be written inside: /tmp, unless something that is seen inside lies below it."""
    return "/scratch" if any(inside.startswith("/tmp/") for inside, _ in _visible_paths()) else "/tmp"


def _hidden(folders: Sequence[str]) -> list[str]:
    """Return where folders would be seen inside, and those with answers: the book of a checkout or of a wheel."""
    answers = [str(PACKAGE / "_book")]
    with contextlib.suppress(FileNotFoundError):
        answers.append(str(book_root() / "book"))
    found: set[str] = set()
    for folder in [os.path.realpath(one) for one in (*folders, *answers)]:
        for inside, outside in _visible_paths():
            if folder.startswith(outside + os.sep) and os.path.isdir(folder):
                found.add(inside + folder.removeprefix(outside))
    return sorted(found)


def _bubblewrap(hidden: Sequence[str], python: list[str]) -> list[str]:
    unshared = [f"--unshare-{kind}" for kind in ("ipc", "pid", "net", "uts")]
    command = [_program("bwrap"), *unshared, "--die-with-parent", "--as-pid-1"]
    command += ["--new-session", "--hostname", "sandbox", "--cap-drop", "ALL"]
    if os.geteuid():
        command += ["--unshare-user"]
    else:
        command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    parents = sorted({str(parent) for inside, _ in _visible_paths() for parent in Path(inside).parents} - {"/"})
    for parent in parents:
        command += ["--perms", "0755", "--dir", parent]
    for inside, outside in _visible_paths():
        if os.path.islink(inside) and inside in SYSTEM:
            command += ["--symlink", os.readlink(inside), inside]
        else:
            command += ["--ro-bind", outside, inside]
    for path in hidden:
        command += ["--tmpfs", path, "--remount-ro", path]
    command += ["--proc", "/proc", "--dev", "/dev", "--ro-bind", "/dev/null", "/dev/zero"]
    for path in ("/dev/shm", writable_folder()):
        command += ["--perms", "1777", "--size", f"{FOLDER_BYTES}", "--tmpfs", path]
    command += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", writable_folder(), "--"]
    return [*command, *(_as_nobody() if not os.geteuid() else []), *python]


def _unshare(root: str, hidden: Sequence[str], python: list[str]) -> list[str]:
    command = [_program("unshare"), "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child"]
    if os.geteuid():
        command += ["--user", "--map-root-user"]
    command += ["--", "/bin/sh", "-c", SCRIPT, "sandbox", root, writable_folder(), f"{FOLDER_BYTES}"]
    command += [os.path.realpath(sys.executable)]
    for inside, outside in _visible_paths():
        command += [inside, outside, "ro,nodev"]
    for device in DEVICE_FILES:
        command += [f"/dev/{device}", f"/dev/{device}", "noexec"]
    for path in hidden:
        command += [path, "hide", ""]
    drops = ["setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
    return [*command, "--", *(_as_nobody() if not os.geteuid() else drops), *python]


def _program(name: str) -> str:
    return shutil.which(name) or name


def _as_nobody() -> list[str]:
    number = USERS[next(_next_user) % len(USERS)]
    user = [f"--reuid={number}", f"--regid={number}", "--clear-groups"]
    return ["setpriv", *user, "--no-new-privs", "--inh-caps=-all"]
