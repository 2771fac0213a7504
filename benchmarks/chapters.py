"""Run All of each chapter as a learner runs it: seconds, and the peak memory of the kernel and its ranks."""

import nbformat

from benchmarks.memory import BOOK, run_all
from benchmarks.report import Row

__all__ = ["rows"]

SECONDS = 180
MEGABYTES = 1500  # what Binder gives
EXECUTED = BOOK.parent / ".bench" / "chapters"  # the notebooks with their outputs, to compare the words with


def rows(quick=False):
    """Return two rows per chapter; `quick` runs the chapters as the tests do."""
    found = []
    for path in sorted(BOOK.glob("[0-9][0-9]-*.ipynb")):
        name = f"chapter {int(path.name[:2])}, Run All"
        notebook = nbformat.read(path, as_version=4)
        seconds, megabytes = run_all(notebook, quick)
        EXECUTED.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, EXECUTED / path.name)
        found.append(Row(name, "s", [seconds], target=("ours", SECONDS)))
        found.append(Row(f"{name}, peak of all its processes", "MB", [megabytes], target=("ours", MEGABYTES)))
    return found
