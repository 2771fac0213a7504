"""The memory of one learner of a class: Run All of each chapter, and what the learner's server takes on a JupyterHub.

Each chapter is executed in a kernel of its own, as a learner runs it, and the peaks of kernel and ranks together are
kept. "private" is what each learner needs. "files" are pages of files, most of them PyTorch's libraries, which all
learners of a machine share. Programs of others that use the same files change neither. Each result is kept at once, and
the same command goes on with those that are missing; `--chapters` measures these alone.
"""

import argparse
import json
import secrets
import sys
import tempfile
import time

import nbformat
import psutil

from benchmarks.memory import BOOK, memory_of, watched_run
from benchmarks.report import RESULTS, machine, markdown_row, write_record
from d2lite.data import FASHION_MNIST
from tools.hub.running_hub import running_hub

__all__ = ["TABLE", "chapter_peaks", "main", "needed_megabytes", "server_memory", "table"]

TEACHING = RESULTS.parents[1] / "docs" / "teaching.md"
TABLE = "<!-- table of memory: benchmarks/records/memory_per_learner.py writes it -->"


def chapter_peaks(path):
    """Execute a notebook in the folder of the book and return {"private": MB, "files": MB}, peaks of its processes."""
    _, peaks = watched_run(nbformat.read(path, as_version=4), D2LITE_QUICK=None, D2LITE_OFFLINE="1")
    return _in_megabytes(peaks)


def server_memory(learners=("ada", "ben", "cem")):
    """Start a hub and a server for each learner; return {"private": MB, "files": MB} of a server, and the hub's own.

    Of the servers it is the largest. The hub's own are those of hub, proxy and culler together.
    """
    with tempfile.TemporaryDirectory() as folder, running_hub(learners, folder, token=secrets.token_hex(16)) as hub:
        for name in learners:
            hub.call(f"users/{name}/server", "POST")
        while not all(hub.call(f"users/{name}")["server"] for name in learners):
            time.sleep(0.5)
        time.sleep(5)  # the extensions of a server are loaded
        children = psutil.Process(hub.pid).children()
        servers = [memory_of(child) for child in children if "single_user.py" in " ".join(child.cmdline())]
        of_hub = memory_of(psutil.Process(hub.pid))["private"] - sum(server["private"] for server in servers)
    if len(servers) != len(learners):
        raise RuntimeError(f"expected {len(learners)} servers, got {len(servers)}.")
    return _in_megabytes(max(servers, key=lambda server: server["private"])) | {"hub": of_hub / 1e6}


def _in_megabytes(peaks):
    if "private" not in peaks:
        raise RuntimeError("expected /proc/PID/smaps_rollup, which Linux has since 5.4, got none.")
    return {kind: peaks[kind] / 1e6 for kind in ("private", "files")}


def needed_megabytes(record, chapter, learners):
    """Return the MB of so many learners who are all at the peak of a chapter at once, with hub and servers."""
    peaks, server = record["chapters"][chapter], record["server"]
    return learners * (peaks["private"] + server["private"]) + peaks["files"] + server["files"] + server["hub"]


def table(record):
    """Return the record as a table in Markdown."""
    head = ["chapter", "private to each learner", "shared by all", "3 learners", "10 learners", "30 learners"]
    lines = [markdown_row(head), markdown_row(["---"] + ["---:"] * 5)]
    for chapter in sorted(record["chapters"], key=int):
        peaks = record["chapters"][chapter]
        sizes = [f"{peaks[kind] / 1000:.2f} GB" for kind in ("private", "files")]
        sizes += [f"{needed_megabytes(record, chapter, n) / 1000:.1f} GB" for n in (3, 10, 30)]
        lines.append(markdown_row([chapter, *sizes]))
    return "\n".join(lines)


def main(argv=None):
    """Measure what is missing in the record, keep it, and print the table."""
    notebooks = {str(int(path.name[:2])): path for path in sorted(BOOK.glob("[0-9][0-9]-*.ipynb"))}
    parser = argparse.ArgumentParser(prog="python -m benchmarks.records.memory_per_learner", description=__doc__)
    parser.add_argument("--save", metavar="NAME", required=True, help="keep it in benchmarks/results/NAME.json and .md")
    parser.add_argument("--chapters", nargs="*", choices=notebooks, default=list(notebooks), help="these alone")
    args = parser.parse_args(argv)
    path = RESULTS / f"{args.save}.json"
    if path.exists():
        record = json.loads(path.read_text())
    else:
        command = f"python -m benchmarks.records.memory_per_learner --save {args.save}"
        record = {"command": command, "machine": machine(FASHION_MNIST), "unit": "MB", "server": {}, "chapters": {}}
    for chapter in args.chapters:
        if chapter not in record["chapters"]:
            record["chapters"][chapter] = chapter_peaks(notebooks[chapter])
            write_record(path, record)
            print(chapter, record["chapters"][chapter], file=sys.stderr, flush=True)
    if not record["server"]:
        record["server"] = server_memory()
        write_record(path, record)
    print(table(record))
    before, _, after = TEACHING.read_text().split(TABLE)
    TEACHING.write_text(f"{before}{TABLE}\n{table(record)}\n{TABLE}{after}")
    path.with_suffix(".md").write_text(f"`{record['command']}`\n\n{_words(record)}\n\n{table(record)}\n")


def _words(record):
    facts = " · ".join(f"{name} {value}" for name, value in record["machine"].items())
    server = record["server"]
    return (
        f"{facts}\n\nPeaks of Run All, kernel and ranks together. On top of them a learner's server on the hub takes "
        f"{server['private']:.0f} MB of its own and {server['files']:.0f} MB that servers share; hub, proxy and culler "
        f"take {server['hub']:.0f} MB. The last three columns have all of this, with all learners at the peak at once."
    )


if __name__ == "__main__":
    main()
