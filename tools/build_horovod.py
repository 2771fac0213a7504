"""Build real Horovod for chapter 6 into .horovod, once: make horovod runs this before it compares.

The environment is Horovod's own, but torch and the rest come from .venv through a .pth file: Horovod only works with
the torch that it was compiled for, and this way that is the torch of the book, without a second download. A stamp
names all that was put in, so that the next call returns at once and another torch means another build.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from setup_env import SetupError, diagnose, exit_status, run

__all__ = ["build", "main"]

ROOT = Path(__file__).resolve().parent.parent
HOROVOD = "horovod==0.28.1"  # the newest release, of 2023
# setuptools 80 dropped what Horovod's setup.py calls; the others are what Horovod imports
TOOLS = ["setuptools<80", "wheel", "packaging", "cloudpickle", "psutil", "pyyaml", "cffi"]
SETTINGS = {
    "HOROVOD_WITH_PYTORCH": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITHOUT_MPI": "1",
    "HOROVOD_WITHOUT_TENSORFLOW": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "CMAKE_POLICY_VERSION_MINIMUM": "3.5",  # its third parties ask for a CMake that version 4 no longer imitates
}
# What this Horovod cannot know: (file, text, replacement). The headers of later torches want a later C++ than it asks
# for; and where there is a CUDA compiler it looks for a CUDA toolkit, though it is to work on CPUs alone.
PATCHES = [
    ("CMakeLists.txt", "set(CMAKE_CXX_STANDARD 14)", "set(CMAKE_CXX_STANDARD {standard})"),
    ("horovod/torch/CMakeLists.txt", "set(CMAKE_CXX_STANDARD 14)", "set(CMAKE_CXX_STANDARD {standard})"),
    ("cmake/Modules/FindPytorch.cmake", 'string(TOUPPER "${Pytorch_CUDA}" Pytorch_CUDA)', "set(Pytorch_CUDA FALSE)"),
]


def check_compiler(which=shutil.which):
    """SetupError where something that compiling needs is missing."""
    if os.name == "nt":
        raise SetupError("Horovod does not build on Windows: use WSL 2; the chapter runs without it")
    if not any(map(which, [os.environ.get("CXX", "c++"), "g++", "clang++"])) or which("make") is None:
        raise SetupError(
            "no C++ compiler or no make: on Debian or Ubuntu run sudo apt install build-essential, on macOS "
            "xcode-select --install, and run it again"
        )
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if not header.exists():
        raise SetupError(
            f"{header} is missing: on Debian or Ubuntu run sudo apt install python3-dev, elsewhere use a Python with "
            "its headers, and run it again"
        )


def step(command, what, log, env=None):
    """Run one command of the build; SetupError in one line if it fails."""
    status, output = run([str(part) for part in command], env=env)
    log.write(output + "\n")
    log.flush()
    if status != 0:
        line = diagnose(output)
        if line is None:
            lines = output.splitlines()
            errors = [line for line in lines if re.search(r"\berror: |CMake Error", line)]
            print("\n".join(errors[:10] or lines[-15:]))  # pip's own words after the compiler's are many
            line = f"{what} failed, see above and {log.name}"
        raise SetupError(line)


def patch(source, standard):
    """Apply PATCHES to Horovod's unpacked source; `standard` is the C++ that torch wants, 17 or 20."""
    for name, old, new in PATCHES:
        text = (source / name).read_text(encoding="utf-8")
        if old not in text:
            raise SetupError(f"{HOROVOD} is not what was expected: {name} lacks {old!r}")
        (source / name).write_text(text.replace(old, new.replace("{standard}", str(standard))), encoding="utf-8")


def fingerprint(root, torch_version):
    """What the stamp holds: another torch, Python, place or recipe means another build."""
    parts = [HOROVOD, torch_version, sys.version, *TOOLS, str(PATCHES), str(SETTINGS), str(root)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def build(root=ROOT, say=print):
    """Make root/.horovod, unless its stamp says that it is there for this torch and this Python."""
    env, started = root / ".horovod", time.time()
    python, stamp, source = env / "bin" / "python", env / ".d2lite-stamp", env / "source"
    try:
        torch_version = version("torch")
    except PackageNotFoundError:
        raise SetupError(
            "there is no torch: run make setup first, then .venv/bin/python tools/build_horovod.py"
        ) from None
    key = fingerprint(root, torch_version)
    if stamp.exists() and stamp.read_text() == key:
        return
    check_compiler()
    say(f"{HOROVOD} for torch {torch_version}: several minutes of compiling, once")
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(env)], check=True)
    (env / ".gitignore").write_text("*\n")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    variables |= SETTINGS | {"MAKEFLAGS": f"-j{min(8, os.cpu_count() or 1)}", "PIP_USER": "0"}
    variables["PATH"] = f"{env / 'bin'}{os.pathsep}{os.environ['PATH']}"
    pip = [python, "-m", "pip", "--no-input", "--retries=3", "--disable-pip-version-check"]
    alone = ["--no-build-isolation", "--no-deps"]
    with open(env / "build.log", "w", encoding="utf-8") as log:
        # before the .pth, while pip sees nothing but this environment
        step([*pip, "install", *TOOLS, *([] if shutil.which("cmake") else ["cmake<4"])], "pip", log, variables)
        library = next(env.glob("lib/python*/site-packages"))
        ours = sysconfig.get_paths()["purelib"]
        (library / "d2lite_venv.pth").write_text(f"import site; site.addsitedir({ours!r})\n")

        step([*pip, "download", *alone, "--no-binary=horovod", "-d", source, HOROVOD], "pip", log, variables)
        archive = next(source.glob("*.tar.gz"))
        shutil.unpack_archive(archive, source)
        source /= archive.name[: -len(".tar.gz")]
        import torch

        patch(source, 20 if "C++ Version: 202002" in torch.__config__.show() else 17)
        # a wheel that pip keeps would come back for another torch
        step([*pip, "install", *alone, "--no-cache-dir", "-v", source], "compiling Horovod", log, variables)
        step([python, "-c", "import horovod.torch"], "loading Horovod", log)
    shutil.rmtree(source.parent)
    stamp.write_text(key)
    say(f"Horovod built in {time.time() - started:.0f} s")


def main():
    return exit_status("horovod", build)


if __name__ == "__main__":
    sys.exit(main())
