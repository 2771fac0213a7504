"""`python -m d2lite`: a report on one screen, to send along when asking for help; `--help` lists the other commands.

It lists the devices, the versions, the place of the data, and which features of the chapters work here. It downloads
nothing and imports no plotting or widget package: it reads the versions of what is installed.
"""

import argparse
import importlib
import importlib.metadata
import os
import platform
import shlex
import socket
import sys
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

import torch
import torch.distributed as dist

import d2lite
from d2lite._install import how_to_install, in_checkout
from d2lite.book import copy_book
from d2lite.data import URL, find_files, is_offline, load_data_fashion_mnist, location
from d2lite.devices import MAX_REPLICAS, describe, num_cores, num_gpus, try_gpus
from d2lite.messages import entry_about
from notebook_ranks.shared.explained import explain_by

__all__ = ["features", "main", "report"]

PACKAGES = ("torch", "torchvision", "numpy", "jupyterlab", "ipykernel", "ipywidgets", "plotly", "anywidget", "pooch")
SERVER = (str(urlsplit(URL).hostname), 80)  # where the complete Fashion-MNIST is downloaded from
_COMMANDS = {
    "data": "download all 60,000 training images (the chapters need only those that come with d2lite)",
    "progress": "list the exercises that were solved with the notebooks of a folder",
    "book": "copy the notebooks, with what they read, into a new folder",
    "rehearse": "run a script as torchrun would, on pretend GPUs if need be, and say what is wrong",
    "course": "write a students' book without answers, and the teacher's copy, into a folder",
    "grade": "grade the submissions of a course: a folder with a notebook, .zip or folder for each learner",
}
_FORWARDS = {
    "rehearse": "ddp_rehearsal:main",
    "course": "d2lite_course:hand_out_main",
    "grade": "d2lite_course:grade_main",
}


def version_of(package: str) -> str | None:
    """Return the installed version of `package`, or None; the package is not imported."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def memory() -> str:
    """Return the total and the free memory of this machine as text."""
    try:
        import psutil
    except ImportError:
        return "unknown (pip install psutil)"
    found = psutil.virtual_memory()
    return f"{found.total / 2**30:.1f} GiB, {found.available / 2**30:.1f} GiB of it free"


def reachable(address: tuple[str, int] = SERVER, timeout_s: float = 3.0) -> bool:
    """Return whether a connection to (host, port) opens within about `timeout_s`."""
    try:
        with socket.create_connection(address, timeout=timeout_s):
            return True
    except OSError:
        return False


def _all_images(is_reachable: Callable[[], bool]) -> bool:
    """Return whether the original files are on this machine, or can be downloaded."""
    try:
        if find_files():
            return True
    except OSError:
        return False
    return not is_offline() and version_of("pooch") is not None and is_reachable()


def features(is_reachable: Callable[[], bool] = reachable) -> list[tuple[str, bool, str]]:
    """Return a list of (feature, whether it works here, what to do if not), in the order of the chapters."""
    missing = {package for package in PACKAGES if version_of(package) is None}
    shows = not missing & {"plotly", "ipywidgets", "anywidget"}
    gpus, ranks, set_up = num_gpus(), dist.is_available(), how_to_install()
    cuda = "TORCH=cuda make lab" if in_checkout() else "see pytorch.org/get-started"
    no_images = (
        "pooch is missing, the server cannot be reached, D2LITE_OFFLINE=1 forbids it, or D2LITE_DATA lacks a file. "
        "No chapter needs them: 12,000 come with d2lite. For all, put the four .gz files into a folder fashion-mnist "
        "and set D2LITE_DATA to its parent folder"
    )
    no_torchvision = f"chapter 3 reads a folder of images with it, chapter 8 counts ResNet-50 and VGG-16: {set_up}"
    one_core = "one core and at most one GPU: all results are correct, but a second replica saves no time"
    few_gpus = f"{gpus} here: replicas share a GPU or take a CPU core each; same notebooks"
    no_gloo = "this build of torch does not have it: install a build from pytorch.org"
    no_nccl = f"requires NVIDIA GPUs and a CUDA build of torch ({cuda}); gloo does the same on CPUs"
    return [
        ("JupyterLab", not missing & {"jupyterlab", "ipykernel"}, set_up),
        ("live figures and the panel", shows, f"plotly, ipywidgets and anywidget are missing: {set_up}"),
        ("torchvision, for ImageNet networks and image folders", "torchvision" not in missing, no_torchvision),
        ("all 60,000 images of Fashion-MNIST, here or by download", _all_images(is_reachable), no_images),
        ("two replicas at the same time", gpus >= 2 or num_cores() >= 2, one_core),
        ("several GPUs", gpus >= 2, few_gpus),
        ("DDP ranks, backend gloo", ranks and dist.is_gloo_available(), no_gloo),
        ("DDP ranks, backend nccl", ranks and dist.is_nccl_available() and gpus >= 1, no_nccl),
    ]


def report(is_reachable: Callable[[], bool] = reachable) -> str:
    """Return the complete text."""
    k = min(num_gpus() or num_cores(), MAX_REPLICAS)
    lines = [
        f"d2lite {d2lite.__version__} in {os.path.dirname(d2lite.__file__)}",
        "",
        f"system   {platform.platform()}",
        f"python   {platform.python_version()} ({sys.executable})",
        f"devices  CPU cores: {num_cores()}, GPUs: {num_gpus()}; num_gpus={k} gives {describe(try_gpus(k))}",
        f"threads  {torch.get_num_threads()} intra-op, unless a replica sets its own",
        f"memory   {memory()}",
        f"data     {location()}",
        "versions " + ", ".join(f"{p} {version_of(p) or 'is missing'}" for p in PACKAGES),
        "",
        "What works here",
    ]
    advice, said = how_to_install(), False
    for name, works, otherwise in features(is_reachable):
        if not works and advice in otherwise:  # a wheel's advice lists packages: once is enough
            otherwise, said = otherwise.replace(advice, "as above") if said else otherwise, True
        lines.append(f"  {'yes' if works else 'no ':3}  {name}" + ("" if works else f" - {otherwise}"))
    return "\n".join(lines)


def fetch() -> None:
    """Download all 60,000 training images, and print where they are."""
    load_data_fashion_mnist(256, 60_000)
    print(location())


def copy_out(folder: str) -> None:
    """Copy the book into a new folder, and print how to open it."""
    place = copy_book(folder)
    settings = place.parent / "tools" / "jupyterlab"  # no question about news, Markdown files as pages
    options = ["--LabApp.default_url=/lab/tree/index.ipynb", f"--LabApp.app_settings_dir={settings}"]
    print(f"The notebooks are in {place}. Open them: {shlex.join(['jupyter', 'lab', str(place), *options])}")


def main(arguments: Sequence[str] = ()) -> None:
    """Print the report; with an argument do what it names (see `_COMMANDS`)."""
    if arguments and arguments[0] in _FORWARDS:  # a command of a package that comes with d2lite
        explain_by(entry_about)  # in the reports of rehearsals
        package, function = _FORWARDS[arguments[0]].split(":")
        run = getattr(importlib.import_module(f"{package}.__main__"), function)
        run(arguments[1:], program=f"python -m d2lite {arguments[0]}")
        return
    parser = argparse.ArgumentParser("python -m d2lite", description="Without a command: what works on this machine.")
    commands = parser.add_subparsers(dest="command", title="commands", metavar="COMMAND")
    for name, words in _COMMANDS.items():
        own = commands.add_parser(name, help=words, description=words.capitalize() + ".")
        if name == "progress":
            own.add_argument("folder", nargs="?", default="", help="default: the current one")
        elif name == "book":
            own.add_argument("folder")
    given = parser.parse_args(arguments)
    if given.command is None:
        print(report())
        return
    try:
        if given.command == "data":
            fetch()
        elif given.command == "book":
            copy_out(given.folder)
        else:
            from d2lite.exercises.progress_report import progress_report  # all chapters: only when they are needed

            print(progress_report(given.folder))
    except (ImportError, OSError, ValueError) as error:
        sys.exit(f"python -m d2lite {given.command}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main(sys.argv[1:])
