"""Peak memory of a kernel and its ranks, and the seconds that its cells take."""

import threading
import time
from pathlib import Path

import nbformat
import psutil

from benchmarks.kernel import running
from benchmarks.report import Row

__all__ = ["BOOK", "rows", "run_all"]

BOOK = Path(__file__).parent.parent / "book"
EVERY_S = 0.1
_RANKS = """
from d2lite import Panel
from d2lite.training import train_ddp
from d2lite import Workers
workers = Workers({k})
panel = Panel(lambda lr: workers.run(train_ddp, 512, lr, 1, {num_examples})[0], lr=0.1)
panel.train.click()
panel.wait()
"""


def rows(quick=False):
    """Return the rows of the memory; `quick` uses few examples, as the tests do."""
    found = []
    for k, bound in ((2, 1200), (4, 1500)):
        cell = nbformat.v4.new_code_cell(_RANKS.format(k=k, num_examples=600 if quick else 60_000))
        row = Row(f"a panel and {k} ranks, LeNet, one epoch of all data, peak", "MB", target=("ours", bound))
        row.ours = [run_all(nbformat.v4.new_notebook(cells=[cell]), quick)[1]]
        found.append(row)
    return found


def run_all(notebook, quick=False):
    """Run all cells of a notebook in `book/`; return the seconds, and the peak memory (10^6 bytes) of kernel and ranks.

    What processes share (the libraries) is counted once, where the system says how much that is (PSS on Linux).
    """
    with running(notebook, BOOK, D2LITE_QUICK="1" if quick else None, D2LITE_LEDGER="off") as client:
        kernel = psutil.Process(client.km.provisioner.pid)
        with _Watch(kernel) as watch:
            start = time.perf_counter()
            for i, cell in enumerate(notebook.cells):
                client.execute_cell(cell, i)
            seconds = time.perf_counter() - start
        return seconds, max(watch.peak, _high_water(kernel.pid)) / 1e6


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
