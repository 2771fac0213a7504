"""Seconds a step against bandwidth and latency: measured on hosts, and predicted from one line of arithmetic."""

import json
import os
import statistics

from benchmarks import report
from tools.cluster import hosts, links
from tools.cluster.agents import Job, last_words

__all__ = [
    "BANDWIDTHS",
    "DELAYS_MS",
    "SCHEMA",
    "machine",
    "measure",
    "predicted_step_s",
    "rows",
    "run_script",
    "save",
    "table",
    "write",
]

SCHEMA = "d2lite-cluster/1"
BANDWIDTHS = (None, 1000, 100, 25)  # Mb/s; None: as fast as the machine copies
DELAYS_MS = (0, 5)
_LIMIT_S = 180  # for one job


def predicted_step_s(compute_s, n_bytes, num_hosts, bandwidth_bytes_per_s=None, latency_s=0.0, all_reduces=1):
    """Return the predicted seconds of a step: computing, then sending, then waiting for messages, one after another.

    A ring all-reduce of `n_bytes` sends 2(k-1)/k times as many from each of k hosts, in 2(k-1) messages in turn.
    `bandwidth_bytes_per_s` None: sending takes no time. `latency_s` is that of one message, one way.
    """
    k = num_hosts
    sending = 0.0
    if bandwidth_bytes_per_s:
        sending = 2 * (k - 1) / k * n_bytes / bandwidth_bytes_per_s
    return compute_s + sending + all_reduces * 2 * (k - 1) * latency_s


def measure(num_hosts, mbit=None, delay_ms=0, on_loopback=False, arguments=()):
    """Run the step-time job on fresh hosts with such links; return its record with the facts of the link.

    Raises RuntimeError with torchrun's last words where the job fails or takes more than three minutes.
    """
    make = hosts.loopback(num_hosts) if on_loopback else hosts.namespaces(num_hosts, mbit, delay_ms)
    with make as cluster:
        record = run_script(cluster, "step_time", arguments, _LIMIT_S, links.link_name(mbit, delay_ms))
    return {"mbit": mbit, "delay_ms": delay_ms, "shaped_by": cluster.shaped_by, "where": cluster.where} | record


def run_script(cluster, name, arguments, limit_s, about, workers_per_host=1):
    """Run book/scripts/<name>.py on the hosts of a cluster; return what it has written with --out.

    Raises RuntimeError, which begins with `about` and ends with torchrun's last words, where the job fails or takes
    more than `limit_s` seconds.
    """
    out = cluster.folder / f"{name}.json"
    words = [f"book/scripts/{name}.py", "--out", str(out), *arguments]
    with Job(cluster, words, workers_per_host=workers_per_host) as job:
        codes = job.wait(limit_s)
        if any(codes) or None in codes:
            said = [f"host {h.number} ({codes[h.number]}): {last_words(job.said(h.number), 2)}" for h in cluster.hosts]
            raise RuntimeError(f"{about}: the job failed. {'; '.join(said)}")
    return json.loads(out.read_text())


def rows(records):
    """Return one flat dict a net and record, with the prediction beside what was measured.

    The computing time is the record's own, taken without communication. The latency of a link as it comes is that of
    the first record of as many hosts, where the link is not limited. Nothing is fitted to the measured steps.
    """
    found = []
    for record in records:
        k = record["world_size"]
        base = next(r for r in records if r["world_size"] == k and r["where"] == record["where"])
        own_latency_s = base["small_all_reduce_s"] / (2 * (k - 1)) - base["delay_ms"] / 1000
        for name, net in record["nets"].items():
            found.append(
                {
                    "net": name,
                    "hosts": k,
                    "mbit": record["mbit"],
                    "delay_ms": record["delay_ms"],
                    "where": record["where"],
                    "compute_s": net["compute_s"],
                    "step_s": statistics.median(net["step_s"]),
                    "predicted_s": predicted_step_s(
                        *(net["compute_s"], net["n_bytes"], k, record["mbit"] and record["mbit"] * 1e6 / 8),
                        own_latency_s + record["delay_ms"] / 1000,
                        net["all_reduces"],
                    ),
                }
            )
    return found


def table(records):
    """Return the records as lines of text."""
    head = f"{'net':9} {'hosts':>5}  {'link':28} {'computing (s)':>13} {'step (s)':>9} {'predicted':>10}"
    lines = [f"{head} {'step/predicted':>15}"]
    for row in rows(records):
        ratio = row["step_s"] / row["predicted_s"]
        link = links.link_name(row["mbit"], row["delay_ms"])
        lines.append(
            f"{row['net']:9} {row['hosts']:5}  {link:28} {row['compute_s']:13.4f} {row['step_s']:9.4f} "
            f"{row['predicted_s']:10.4f} {ratio:15.2f}"
        )
    return "\n".join(lines)


def save(path, command, facts, records, stories):
    """Keep everything as JSON. `facts` are `machine`'s, taken before the first job."""
    write(path, {"schema": SCHEMA, "command": command, "machine": facts, "links": records, "faults": stories})


def write(path, kept):
    """Write a JSON file: whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_text(json.dumps(kept, indent=1) + "\n")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def machine():
    """Return the facts of this machine that the figures depend on; no name of it, no path."""
    facts = report.machine()
    return {
        name: facts[name] for name in ("date", "processor", "cores", "load before", "python", "torch") if name in facts
    }
