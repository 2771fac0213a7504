"""What one `add` to a live figure costs the training loop: ours against d2l's, each in a kernel."""

import importlib.metadata
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.kernel import run_cells
from benchmarks.report import Row, rounds

__all__ = ["rows"]

D2L = Path(__file__).parent.parent / ".bench" / "d2l"  # an environment of its own, made on first use
D2L_VERSION = "1.0.3"
EVERY_S = 0.02  # a step of training between two calls: ours pushes by the clock
_OURS = "from d2lite import Animator"
_PEER = "from d2l.torch import Animator"
_LOOP = """
import json, time
animator = Animator(xlabel="epoch", ylabel="test acc", legend=["train loss", "test acc"], xlim=[0, 10], ylim=[0, 1])
seconds = []
def measure(n):
    for i in range(n):
        time.sleep({pause})
        start = time.perf_counter()
        animator.add(10 * i / n, (0.3, i / n))
        seconds.append(time.perf_counter() - start)
"""
# The times are printed by a cell of their own: clear_output takes away what is printed beside a figure.
_CELLS = [
    "measure({dropped})",
    "seconds.clear(); used = time.process_time(); measure({calls})",
    "print(json.dumps([1e3 * s for s in seconds] + [1e3 * (time.process_time() - used) / {calls}]))",
]


def rows(n=3, calls=100):
    """Return the row of `add`: `n` rounds, each the median of `calls` calls in a fresh kernel.

    The note has the slowest call, and what a call costs the processor in all: ours sends from another thread.
    """
    row = Row("Animator.add", "ms", peer_name=f"d2l {D2L_VERSION}", target=("ours", 1.0))
    trouble = install_d2l()
    slowest, used = {"ours": [], "peer": []}, {"ours": [], "peer": []}

    def median_ms(who, imports, **environment):
        *times, processor = _add_ms(imports, calls, **environment)
        slowest[who].append(max(times))
        used[who].append(processor)
        return statistics.median(times)

    contestants = {"ours": lambda: median_ms("ours", _OURS)}
    if trouble is None:
        contestants["peer"] = lambda: median_ms("peer", _PEER, PYTHONPATH=str(D2L))
    times = rounds(contestants, n)
    row.ours, row.peer = times["ours"], times.get("peer", [])
    row.note = f"slowest {max(slowest['ours']):.3g} ms, processor {statistics.median(used['ours']):.3g} ms a call"
    if row.peer:
        row.note += f" (peer: {max(slowest['peer']):.3g}, {statistics.median(used['peer']):.3g})"
    else:
        row.note += f"; no peer: {trouble}"
    return [row]


def _add_ms(imports, calls, **environment):
    """The times of `calls` calls (ms) in a fresh kernel, after some that are dropped; last, processor time a call."""
    cells = [imports + _LOOP.format(pause=EVERY_S), *(cell.format(calls=calls, dropped=5) for cell in _CELLS)]
    return json.loads(run_cells(cells, **environment))


def install_d2l(folder=D2L):
    """Install d2l into a folder of its own, once; return None, or one line that says why it is not there.

    Its pinned requirements are of 2023 and have no builds for newer Pythons: the package itself as published, what it
    imports in today's versions, numpy in the version that is here, since torch is taken from here.
    """
    if (folder / "d2l").exists():
        return None
    part = folder.with_name(f"{folder.name}.{os.getpid()}")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(part)]
    numpy = f"numpy=={importlib.metadata.version('numpy')}"
    try:
        for wanted in (["--no-deps", f"d2l=={D2L_VERSION}"], [numpy, "matplotlib", "pandas", "requests", "scipy"]):
            done = subprocess.run([*pip, *wanted], capture_output=True, text=True)
            if done.returncode:
                said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
                return f"pip could not install {wanted[-1]} ({said[-1] if said else 'no network?'})"
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
        (folder.parent / ".gitignore").write_text("*\n")  # it ignores itself
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return None
