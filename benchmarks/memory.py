"""Peak memory of a kernel and its ranks, running a chapter as a learner does."""

import threading
from pathlib import Path

import nbformat
import psutil

from benchmarks.kernel import running
from benchmarks.report import Row

__all__ = ["BOOK", "peak_mb", "rows"]

BOOK = Path(__file__).parent.parent / "book"
EVERY_S = 0.1
_RANKS = """
from d2lite import Panel
from d2lite.training import train_ddp
from d2lite import Workers
workers = Workers({k})
panel = Panel(lambda lr: workers.run(train_ddp, 512, lr, 1)[0], lr=0.1)
panel.train.click()
panel.wait()
"""


def rows(quick=False):
    """Return the rows of the memory; `quick` runs the chapters as the tests do."""
    found = []
    chapters = [("02", "kernel", 1000)] + [(f"{i:02}", "kernel and ranks together", 1500) for i in range(4, 9)]
    for number, about, bound in chapters:
        row = Row(f"chapter {int(number)}, {about}, peak", "MB", target=("ours", bound))
        chapter = next(BOOK.glob(f"{number}-*.ipynb"), None)
        if chapter is None:
            row.skipped = "chapter not found"
        else:
            row.ours = [peak_mb(nbformat.read(chapter, as_version=4), quick)]
        found.append(row)
    for k, bound in ((2, 1200), (4, 1500)):
        cell = nbformat.v4.new_code_cell(_RANKS.format(k=k))
        row = Row(f"a panel and {k} ranks, LeNet, one epoch of all data, peak", "MB", target=("ours", bound))
        row.ours = [peak_mb(nbformat.v4.new_notebook(cells=[cell]), quick)]
        found.append(row)
    return found


def peak_mb(notebook, quick=False):
    """Run all cells of a notebook; return the largest memory (10^6 bytes) of its kernel with its children.

    What processes share (the libraries) is counted once, where the system says how much that is (PSS on Linux).
    """
    with running(notebook, BOOK, D2LITE_QUICK="1" if quick else None) as client:
        kernel = psutil.Process(client.km.provisioner.pid)
        with _Watch(kernel) as watch:
            for i, cell in enumerate(notebook.cells):
                client.execute_cell(cell, i)
        return max(watch.peak, _high_water(kernel.pid)) / 1e6


class _Watch:
    """Reads the memory of a process and its children, again and again, and keeps the largest sum."""

    def __init__(self, process):
        self.process, self.peak, self._done = process, 0, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._done.set()
        self._thread.join()

    def _look(self):
        while True:
            total = 0
            try:
                for process in [self.process, *self.process.children(recursive=True)]:
                    total += _memory(process)
            except psutil.NoSuchProcess:  # it ended while we looked
                pass
            self.peak = max(self.peak, total)
            if self._done.wait(EVERY_S):
                return


def _memory(process):
    """Bytes of one process, its share of what others use too counted in part; resident memory where that is unknown."""
    try:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return process.memory_info().rss


def _high_water(pid):
    """The kernel's own peak as Linux keeps it (bytes), 0 elsewhere."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0)
