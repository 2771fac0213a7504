"""Peak memory of the kernel that runs chapter 2 as a learner does."""

import threading
from pathlib import Path

import nbformat
import psutil

from benchmarks.kernel import running
from benchmarks.report import Row

__all__ = ["CHAPTER", "peak_mb", "rows"]

CHAPTER = Path(__file__).parent.parent / "book" / "02-data-parallel-from-scratch.ipynb"
EVERY_S = 0.05


def rows(chapter=CHAPTER, quick=False):
    """Return the row of the memory; `quick` runs the chapter as the tests do."""
    row = Row("memory of the kernel in chapter 2, peak", "MB", target=("ours", 1000))
    if not chapter.exists():
        row.skipped = "chapter not found"
    else:
        row.ours = [peak_mb(chapter, quick)]
    return [row]


def peak_mb(chapter, quick=False):
    """Run all cells of a notebook; return the largest resident memory (10^6 bytes) of its kernel with its children."""
    notebook = nbformat.read(chapter, as_version=4)
    with running(notebook, chapter.parent, D2LITE_QUICK="1" if quick else None) as client:
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
                    total += process.memory_info().rss
            except psutil.NoSuchProcess:  # it ended while we looked
                pass
            self.peak = max(self.peak, total)
            if self._done.wait(EVERY_S):
                return


def _high_water(pid):
    """The kernel's own peak as Linux keeps it (bytes), 0 elsewhere."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0)
