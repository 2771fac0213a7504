"""How large the Binder environment is: disk from its requirements, memory from the measured chapters.

    python tools/binder_size.py

Disk is the sum of the files of every distribution that binder/requirements.txt leads to, as installed in this
environment. Binder takes the CPU build of torch: of a CUDA build only the libraries that a CPU build has are counted.
The system that repo2docker puts below is not included. Memory is the peak of each chapter in
benchmarks/results/memory-cpu-build.json, kernel and ranks together, next to the 2 GB at which mybinder.org ends a
session (as users of it report).
"""

import importlib.metadata
import json
import re
import sys
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.check_install import closure  # noqa: E402

__all__ = ["disk", "main", "memory", "requirements"]

_CUDA = re.compile(r"^(nvidia-|cuda-|triton$)")  # distributions that only CUDA builds of torch need
_CUDA_FILE = re.compile(r"torch/lib/lib\w*(cuda|nvshmem|nvrtc|cublas|cudnn|cufft)\w*\.so")
LIMIT_MB = 2000  # of one session


def requirements(path=ROOT / "binder" / "requirements.txt"):
    """Return the requirements in a file and in those that it names with -r, the package itself left out."""
    found = []
    for line in path.read_text().splitlines():
        line = line.split(" #")[0].strip()
        if line.startswith("-r "):
            found += requirements((path.parent / line[3:]).resolve())
        elif line and not line.startswith(("#", "-")):
            requirement = Requirement(line)
            requirement.specifier = type(requirement.specifier)()
            found.append(str(requirement))
    return found


def size(name):
    """Return the bytes of an installed distribution's files, as they would be in a CPU environment."""
    about, total = importlib.metadata.distribution(name), 0
    for file in about.files or []:
        place = Path(str(about.locate_file(file)))
        if not _CUDA_FILE.search(str(file)) and place.is_file():
            total += place.stat().st_size
    return total


def disk():
    """Return {distribution: bytes}, the largest first."""
    names = {name for name in closure(requirements()) if not _CUDA.match(canonicalize_name(name))}
    return dict(sorted(((name, size(name)) for name in names), key=lambda pair: -pair[1]))


def memory(path=ROOT / "benchmarks" / "results" / "memory-cpu-build.json"):
    """Return {chapter: peak in MB}."""
    rows = json.loads(path.read_text())["rows"]
    return {row["name"]: max(row["ours"]) for row in rows if row["unit"] == "MB" and row["ours"]}


def main():
    """Print both."""
    sizes = disk()
    print(f"disk: {sum(sizes.values()) / 1e9:.2f} GB in {len(sizes)} packages, the largest of them")
    for name in list(sizes)[:6]:
        print(f"  {name:14} {sizes[name] / 1e6:6,.0f} MB")
    print("memory, peak, CPU build of torch")
    for name, peak in memory().items():
        over = f"  (above {LIMIT_MB:,} MB)" if peak > LIMIT_MB else ""
        print(f"  {peak:6,.0f} MB  {name.removesuffix(', peak')}{over}")


if __name__ == "__main__":
    main()
