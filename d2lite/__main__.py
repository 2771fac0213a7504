"""`python -m d2lite`: a report on one screen, to send along when asking for help.

It lists the devices, the versions, the place of the data, and which features of the chapters work here. It downloads
nothing and imports no plotting or widget package: it reads the versions of what is installed. `python -m d2lite data`
downloads the data set, or draws its substitute, before the first lesson.
"""

import importlib.metadata
import os
import platform
import socket
import sys
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

import d2lite
from d2lite.data import find_files, load_data_fashion_mnist, location
from d2lite.devices import MAX_REPLICAS, describe, num_cores, num_gpus, try_gpus

__all__ = ["features", "main", "report"]

PACKAGES = ("torch", "torchvision", "numpy", "jupyterlab", "ipykernel", "ipywidgets", "plotly", "anywidget")
MIRROR = ("fashion-mnist.s3-website.eu-central-1.amazonaws.com", 80)  # where Fashion-MNIST is fetched
SET_UP = "run make lab, or pip install -r requirements.txt"


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


def reachable(address: tuple[str, int] = MIRROR, timeout_s: float = 3.0) -> bool:
    """Return whether a connection to (host, port) opens within about `timeout_s`."""
    try:
        with socket.create_connection(address, timeout=timeout_s):
            return True
    except OSError:
        return False


def features(is_reachable: Callable[[], bool] = reachable) -> list[tuple[str, bool, str]]:
    """Return a list of (feature, whether it works here, what to do if not), in the order of the chapters."""
    installed = {package: version_of(package) is not None for package in PACKAGES}
    shows = installed["plotly"] and installed["ipywidgets"] and installed["anywidget"]
    gpus, ranks = num_gpus(), dist.is_available()
    torch_hint = "this build of torch does not have it: install a build from pytorch.org"
    return [
        ("JupyterLab", installed["jupyterlab"] and installed["ipykernel"], SET_UP),
        ("live figures", shows, f"plotly, ipywidgets and anywidget are missing: {SET_UP}"),
        ("panel", shows, f"plotly, ipywidgets and anywidget are missing: {SET_UP}"),
        (
            "Fashion-MNIST, here or by download",
            bool(find_files()) or is_reachable(),
            "its server cannot be reached: put the four .gz files into a folder "
            "fashion-mnist and set D2LITE_DATA to its parent folder; until then the drawn set is used",
        ),
        (
            "two replicas at the same time",
            gpus >= 2 or num_cores() >= 2,
            "one core and at most one GPU: all results are correct, but a second replica saves no time",
        ),
        ("several GPUs", gpus >= 2, f"{gpus} here: replicas share a GPU or take a CPU core each; same notebooks"),
        ("DDP ranks, backend gloo", ranks and dist.is_gloo_available(), torch_hint),
        (
            "DDP ranks, backend nccl",
            ranks and dist.is_nccl_available() and gpus >= 1,
            "requires NVIDIA GPUs and a CUDA build of torch (TORCH=cuda make lab); gloo does the same on CPUs",
        ),
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
    for name, works, otherwise in features(is_reachable):
        lines.append(f"  {'yes' if works else 'no ':3}  {name}" + ("" if works else f" - {otherwise}"))
    return "\n".join(lines)


def fetch() -> None:
    """Download the data set, or draw its substitute, and print its name, size and place."""
    train_iter, test_iter = load_data_fashion_mnist(256)
    print(f"{train_iter.dataset}: {train_iter.num_examples:,} examples to train, {test_iter.num_examples:,} to test.")
    print(location())


def main(arguments: Sequence[str] = ()) -> None:
    """Print the report; with the argument `data`, download the data set instead."""
    if list(arguments) == ["data"]:
        fetch()
    elif arguments:
        got = " ".join(arguments)
        sys.exit(f"python -m d2lite: expected no argument, or data, got {got}. `data` downloads the data set.")
    else:
        print(report())


if __name__ == "__main__":
    main(sys.argv[1:])
