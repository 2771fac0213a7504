"""`make slurm`, `python -m tools.slurm`: a real Slurm on two nodes in this machine, and what it does with jobs.

Without arguments the demonstrations run one after another. `shell` opens a shell on node1, with sbatch, squeue, scancel
and sinfo, and ends the cluster when you leave it. It needs Linux, root, and the packages slurm-wlm and munge.
"""

import argparse
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

from tools.cluster import speed
from tools.slurm import box as slurm
from tools.slurm import demonstrations

__all__ = ["RESULT", "SCHEMA", "main"]

SCHEMA = "d2lite-slurm/1"
RESULT = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "slurm.json"
_WELCOME = """You are on node1 of a Slurm cluster of two nodes, one core each. Try
    sinfo
    sbatch train.sbatch     two nodes train together; its output goes to train-ddp-<job>.txt
    sbatch in_time.sbatch   it stops before its time limit, and goes on
    sbatch rates.sbatch     four learning rates
    squeue
`exit` ends the cluster and removes its files."""


def main(argv=None):
    """Run the demonstrations, print the table, write the JSON; or open a shell. Return the exit status."""
    args = _parse(argv)
    if why := slurm.why_not():
        print(f"No Slurm: {why}.", file=sys.stderr)
        return 1
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))  # so that the cluster is ended then, too
    try:
        return _shell() if args.what == "shell" else _demonstrate(args, argv)
    except KeyboardInterrupt:
        print("\ninterrupted; the cluster is removed", file=sys.stderr)
        return 130


def _demonstrate(args, argv):
    facts = speed.machine() | {"slurm": slurm.version()}
    rows, broken = [], []
    with slurm.running_slurm() as box:
        for name in args.only:
            began = time.monotonic()
            try:
                rows += demonstrations.demonstrate(box, name)
                outcome = "done"
            except (RuntimeError, TimeoutError, subprocess.TimeoutExpired) as error:
                broken.append(name)
                outcome = f"failed: {error}"
            print(f"{time.monotonic() - began:5.0f} s  {name}: {outcome}", file=sys.stderr, flush=True)
    print(f"\n{demonstrations.table(rows)}\n")
    if args.json and broken:
        print(f"{args.json} is left as it is: {', '.join(broken)} did not end as expected.")
    elif args.json:
        command = shlex.join(["python", "-m", "tools.slurm", *(sys.argv[1:] if argv is None else argv)])
        speed.write(args.json, {"schema": SCHEMA, "command": command, "machine": facts, "rows": rows})
        print(f"{args.json} is written.")
    return int(bool(broken))


def _shell():
    with slurm.running_slurm() as box:
        demonstrations.prepare(box.home)
        if sys.stdin.isatty():
            print(_WELCOME, flush=True)
        held = signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is for what runs in the shell
        try:
            subprocess.call(box.words(["bash", "--norc"]), env=box.environment())
        finally:
            signal.signal(signal.SIGINT, held)
    return 0


def _parse(argv):
    parser = argparse.ArgumentParser(prog="python -m tools.slurm", description=__doc__)
    parser.add_argument("what", nargs="?", choices=["all", "shell"], default="all")
    names = list(demonstrations.DEMONSTRATIONS)
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="these demonstrations")
    parser.add_argument(
        "--json", type=Path, metavar="PATH", help=f"keep what was printed; chapter 7 reads {RESULT.name}"
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
