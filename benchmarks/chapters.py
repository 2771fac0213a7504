"""Run All of each chapter as a learner runs it: seconds, and the peak memory of the kernel and its ranks."""

import sys

import nbformat
from nbclient.exceptions import CellExecutionError

from benchmarks.memory import BOOK, run_all
from benchmarks.report import Row

__all__ = ["rows"]

SECONDS = 90
MEGABYTES = 1500  # what Binder gives
EXECUTED = BOOK.parent / ".bench" / "chapters"  # the notebooks with their outputs, to compare the words with


def rows(quick=False, pattern="[0-9][0-9]"):
    """Return two rows per chapter whose number fits `pattern`; `quick` runs the chapters as the tests do."""
    found = []
    for path in sorted(BOOK.glob(f"{pattern}-*.ipynb")):
        name = f"chapter {int(path.name[:2])}, Run All"
        time = Row(name, "s", target=("ours", SECONDS))
        memory = Row(f"{name}, peak of all its processes", "MB", target=("ours", MEGABYTES))
        notebook = nbformat.read(path, as_version=4)
        try:
            seconds, megabytes = run_all(notebook, quick)
            time.ours, memory.ours = [seconds], [megabytes]
        except CellExecutionError as error:
            time.skipped = memory.skipped = f"failed: {error.ename}: {error.evalue[:200]}"
        EXECUTED.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, EXECUTED / path.name)
        found += [time, memory]
        print(*(" ".join(row.cells()[:2]) for row in found[-2:]), sep=", ", file=sys.stderr, flush=True)
    return found
