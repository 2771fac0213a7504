"""What guards a release: each step's command, how it ended, how long it took, and its last line, as one table.

`make release` runs all steps, also those after one that failed, and ends with 1 if one failed. A step that this machine
cannot take (no root, no compiler) says so in its last line. The output of each step is kept in build/release/.
"""

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

__all__ = ["STEPS", "main", "table"]

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "release"
LIMIT_S = 3 * 3600  # of one step
# name: the command, as it can be typed by hand
STEPS = {
    "lint": "make lint",
    "quick tests and chapters": "make test",
    "slow tests, appendices, solutions": "make test-slow",
    "tests for a release": "make test-release",
    "every notebook without GPUs": "make pretend GPUS=0",
    "every notebook on one GPU": "make pretend GPUS=1",
    "every notebook on four GPUs": "make pretend GPUS=4",
    "wheels": "make wheels",
    "packages alone": "make packages",
    "packages alone, oldest torch": "make packages ARGS='--torch 2.11.0'",
    "Horovod": "make horovod",
    "Slurm": "make slurm",
    "hub": "make hub-tests",
    "other graders": "make graders",
    "Binder": "make binder",
}


def main(arguments=None):
    """Run the steps, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(description="Run what guards a release, and print one table.")
    parser.add_argument("--only", nargs="+", choices=STEPS, default=list(STEPS), metavar="STEP", help="these steps")
    given = parser.parse_args(arguments)
    LOGS.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in given.only:
        rows.append((name, *taken(name, STEPS[name])))
        print(table(rows[-1:]).splitlines()[-1], flush=True)
    print(f"\n{table(rows)}")
    return int(any(code != 0 for _, _, code, _, _ in rows))


def taken(name, command):
    """Take a step; return (command, exit code, seconds, its last line)."""
    began, path = time.monotonic(), LOGS / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}.txt"
    with path.open("w") as log:
        step = subprocess.Popen(command, shell=True, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            code = step.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            step.kill()
            code = step.wait()
    lines = [line.strip(" =") for line in path.read_text(errors="replace").splitlines() if line.strip(" =")]
    last = lines[-1] if lines else ""
    if re.match(r"\d+ skipped in", last):  # tests that are all skipped have tested nothing
        code = code or 1
    return command, code, time.monotonic() - began, last


def table(rows):
    """Return rows (step, command, exit code, seconds, last line) as a table of Markdown."""
    lines = ["| step | command | exit code | time | last line |", "| --- | --- | --- | --- | --- |"]
    for name, command, code, seconds, last in rows:
        minutes = f"{int(seconds) // 60}:{int(seconds) % 60:02}"
        lines.append(f"| {name} | `{command}` | {code} | {minutes} | {last[:160].replace('|', '/')} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
