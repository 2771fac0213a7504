"""What the published lesson of chapter 3 has printed: a run on one GPU and one on two, in each version of its history.

After `git clone https://github.com/d2l-ai/d2l-pytorch-slides FOLDER`:
`python -m benchmarks.records.published_pairs FOLDER published-pairs`. Nothing is trained. Versions that print the same
figures count once, and versions that print only one of the two runs are left out.
"""

import argparse
import json
import re
import subprocess

from benchmarks.report import RESULTS, write_record

__all__ = ["NOTEBOOK", "main", "pairs_of", "runs_in"]

SOURCE = "https://github.com/d2l-ai/d2l-pytorch-slides"
NOTEBOOK = "chapter_computational-performance/multiple-gpus-concise.ipynb"
_CALL = re.compile(r"train\((?:net, )?num_gpus=(\d+), batch_size=(\d+), lr=([\d.]+)\)")
_PRINTED = re.compile(r"test acc: ([\d.]+), ([\d.]+) sec/epoch")


def runs_in(notebook):
    """Return {number of GPUs: what its run printed} of a notebook, a dict as JSON has it."""
    runs = {}
    for cell in notebook["cells"]:
        called = _CALL.search("".join(cell["source"]))
        printed = _PRINTED.search("".join("".join(output.get("text", [])) for output in cell.get("outputs", [])))
        if called and printed:
            names = "batch_size", "lr", "accuracy", "seconds_per_epoch"
            figures = int(called[2]), float(called[3]), float(printed[1]), float(printed[2])
            runs[int(called[1])] = dict(zip(names, figures, strict=True))
    return runs


def pairs_of(folder):
    """Return one dict for each pair of runs in the history, the oldest first: its commit, the date, and both runs."""
    log = _git(folder, "log", "--reverse", "--diff-filter=AM", "--format=%H %as", "--", NOTEBOOK)
    pairs = []
    for commit, date in map(str.split, log.splitlines()):
        runs = runs_in(json.loads(_git(folder, "show", f"{commit}:{NOTEBOOK}")))
        pair = {"one": runs.get(1), "two": runs.get(2)}
        if all(pair.values()) and not any(pair.items() <= earlier.items() for earlier in pairs):
            pairs.append({"commit": commit, "date": date} | pair)
    return pairs


def _git(folder, *arguments):
    return subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True, check=True).stdout


def main(argv=None):
    """Read the history in a folder, keep the pairs under the name given, and print how many there are."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.records.published_pairs", description=__doc__)
    parser.add_argument("folder", help="the clone")
    parser.add_argument("name", help="of the file in benchmarks/results")
    options = parser.parse_args(argv)
    pairs = pairs_of(options.folder)
    command = f"python -m benchmarks.records.published_pairs FOLDER {options.name}"
    record = {"command": command, "source": SOURCE, "notebook": NOTEBOOK, "pairs": pairs}
    write_record(RESULTS / f"{options.name}.json", record)
    print(f"{len(pairs)} pairs in {RESULTS / options.name}.json")


if __name__ == "__main__":
    main()
