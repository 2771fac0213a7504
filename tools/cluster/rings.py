"""`python -m tools.cluster.rings`: all-reduce algorithms on hosts with a slow cable, measured and predicted."""

import argparse
import shlex
import signal
import statistics
import sys
from pathlib import Path

from d2lite.costs import Cluster, Link, all_reduce_seconds
from tools.cluster import hosts, links, speed

__all__ = ["LAYOUTS", "SCHEMA", "main", "measure", "rows", "table"]

SCHEMA = "d2lite-rings/1"
LAYOUTS = ((4, 1), (2, 2))  # hosts, ranks of each
MBIT = (100, 25)
_LIMIT_S = 240  # for one job


def measure(num_hosts, per_host, mbit=None, delay_ms=0, arguments=()):
    """Run the all-reduces on fresh hosts with such links; return the record with the facts of the link.

    Raises RuntimeError with torchrun's last words where the job fails or takes more than four minutes.
    """
    arguments, about = [f"--per-host={per_host}", *arguments], links.link_name(mbit, delay_ms)
    with hosts.namespaces(num_hosts, mbit, delay_ms) as cluster:
        record = speed.run_script(cluster, "all_reduce_time", arguments, _LIMIT_S, about, workers_per_host=per_host)
    return {"hosts": num_hosts, "mbit": mbit, "delay_ms": delay_ms, "shaped_by": cluster.shaped_by} | record


def rows(records):
    """Return one flat dict a record and algorithm: the median of what was measured, and what is predicted.

    The cable's bandwidth is the one that was set. Its latency, and the link inside a host, are those of single messages
    of the same job. Nothing is fitted to the all-reduces.
    """
    found = []
    for record in records:
        k, per_host, n_bytes = record["world_size"], record["per_host"], record["n_bytes"]
        small_s = record["small_s"]  # ranks 0 and 1: on one host, where a host has two
        across = Link(small_s + (record["delay_ms"] / 1000 if per_host > 1 else 0), record["mbit"] * 1e6 / 8)
        sending_s = max(record["message_s"] - small_s, 1e-6)  # inside a host it may drown in the noise
        inside = Link(small_s, n_bytes / sending_s) if per_host > 1 else across
        cluster = Cluster(inside, across, per_host)
        measured = {name: statistics.median(times) for name, times in record["seconds"].items()}
        predicted = {name: all_reduce_seconds(name, k, n_bytes, cluster) for name in measured}
        for name in measured:
            found.append(
                {
                    "hosts": record["hosts"],
                    "per_host": per_host,
                    "mbit": record["mbit"],
                    "delay_ms": record["delay_ms"],
                    "algorithm": name,
                    "measured_s": measured[name],
                    "predicted_s": predicted[name],
                    "measured_factor": measured["naive"] / measured[name],
                    "predicted_factor": predicted["naive"] / predicted[name],
                }
            )
    return found


def table(records):
    """Return the records as lines of text; a factor says how much faster than the naive algorithm."""
    head = f"{'hosts':>5} {'ranks':>5}  {'link':26} {'algorithm':17} {'measured':>9} {'predicted':>10}"
    lines = [f"{head} {'times naive, measured':>22} {'predicted':>10}"]
    for row in rows(records):
        lines.append(
            f"{row['hosts']:5} {row['hosts'] * row['per_host']:5}  {links.link_name(row['mbit'], row['delay_ms']):26} "
            f"{row['algorithm']:17} {row['measured_s']:7.3f} s {row['predicted_s']:8.3f} s "
            f"{row['measured_factor']:22.2f} {row['predicted_factor']:10.2f}"
        )
    return "\n".join(lines)


def main(argv=None):
    """Measure, print the table, write the JSON; return 0, or 1 where hosts cannot be made."""
    parser = argparse.ArgumentParser(prog="python -m tools.cluster.rings", description=__doc__)
    parser.add_argument("--mbit", type=float, nargs="+", default=MBIT, help="bandwidths of the cables, Mb/s")
    parser.add_argument("--json", type=Path, metavar="PATH", help="keep the figures")
    args = parser.parse_args(argv)
    if why_not := hosts.why_no_namespaces():
        print(f"No network namespaces: {why_not}. Without cables that can be slowed down there is nothing to measure.")
        return 1
    facts = speed.machine()
    records = [measure(num_hosts, per_host, mbit) for num_hosts, per_host in LAYOUTS for mbit in args.mbit]
    print(table(records))
    if args.json:
        command = shlex.join(["python", "-m", "tools.cluster.rings", *(sys.argv[1:] if argv is None else argv)])
        speed.write(args.json, {"schema": SCHEMA, "command": command, "machine": facts, "records": records})
        print(f"{args.json} is written.")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that hosts are removed then, too
    sys.exit(main())
