"""Peak memory of a kernel and its ranks, and the seconds that its cells take."""

import threading
import time
from pathlib import Path

import nbformat
import psutil

from benchmarks.kernel import running
from benchmarks.report import Row

__all__ = ["BOOK", "memory_of", "rows", "run_all", "watched_run"]

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
    seconds, peaks = watched_run(notebook, D2LITE_QUICK="1" if quick else None)
    return seconds, peaks["all"] / 1e6


def watched_run(notebook, **variables):
    """Run all cells of a notebook in `book/`; return the seconds, and the peaks of `memory_of` its kernel (bytes).

    `variables` are environment variables of the kernel; None takes one away.
    """
    with running(notebook, BOOK, D2LITE_LEDGER="off", **variables) as client:
        kernel = psutil.Process(client.km.provisioner.pid)
        with _Watch(kernel) as watch:
            start = time.perf_counter()
            for i, cell in enumerate(notebook.cells):
                client.execute_cell(cell, i)
            seconds = time.perf_counter() - start
        return seconds, watch.peaks | {"all": max(watch.peaks["all"], _high_water(kernel.pid))}


class _Watch:
    """Reads the memory of a process and its children, again and again, and keeps the largest sums in `peaks`."""

    def __init__(self, process):
        self.process, self.peaks, self._done = process, {}, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._done.set()
        self._thread.join()

    def _look(self):
        while True:
            start = time.perf_counter()
            for kind, size in memory_of(self.process).items():
                self.peaks[kind] = max(self.peaks.get(kind, 0), size)
            looking_s = time.perf_counter() - start
            if self._done.wait(max(EVERY_S, 4 * looking_s)):  # on a busy machine it would take the kernel's time
                return


def memory_of(process):
    """Return the bytes of a process and its children: "all", and on Linux of these "private" and "files".

    all: pages that n processes use count for each of them as one n-th (PSS). So a sum counts them once, and misses what
        other programs use too. Without Linux it is the resident memory, in which they count once per process.
    private: what is in no file; pages that a forked rank shares with its starter count once.
    files: pages of files, most of them libraries, of the process that has most of them; all users of the machine share
        these.
    """
    found = {"all": 0}
    try:
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return found
    for member in family:
        try:
            sizes = _of_one(member)
        except psutil.NoSuchProcess:  # it ended while we looked
            continue
        files = max(found.get("files", 0), sizes.pop("files", 0))
        found = {kind: found.get(kind, 0) + size for kind, size in sizes.items()} | {"files": files}
    return found


def _of_one(process):
    try:
        sizes = _fields(f"/proc/{process.pid}/smaps_rollup")
        private = sizes["Pss_Anon"] + sizes["Pss_Shmem"]
        files = _fields(f"/proc/{process.pid}/status")["RssFile"]
        return {"all": sizes["Pss"], "private": private, "files": files}
    except (OSError, KeyError):
        return {"all": process.memory_info().rss}


def _high_water(pid):
    """The kernel's own peak as Linux keeps it (bytes), 0 elsewhere."""
    try:
        return _fields(f"/proc/{pid}/status").get("VmHWM", 0)
    except OSError:
        return 0


def _fields(path):
    """The sizes that a file of /proc lists, in bytes."""
    lines = [line.split() for line in Path(path).read_text().splitlines() if line.endswith(" kB")]
    return {name.rstrip(":"): int(size) * 1024 for name, size, _ in lines}
