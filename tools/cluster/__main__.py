"""`make cluster`, `python -m tools.cluster`: step times against bandwidth and latency, then faults; two tables."""

import argparse
import shlex
import signal
import sys
import time
from pathlib import Path

from tools.cluster import faults, hosts, links, speed

__all__ = ["main"]

RESULT = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "cluster.json"


def main(argv=None):
    """Measure, print the tables, write the JSON; return 0, or 1 if something could not be measured."""
    args = _parse(argv)
    why_not = "--loopback was given" if args.loopback else hosts.why_no_namespaces()
    if why_not:
        print(f"No network namespaces: {why_not}. Two torchrun agents on loopback instead; its links cannot be shaped.")
    elif not hosts.has_netem():
        print("This kernel lacks netem: tbf limits the bandwidth, and a delay line of our own delays packets.")
    facts = speed.machine()
    measurements = _links(args, why_not) if "speed" in args.what else []
    cuttable = [fault for fault in args.faults if not (why_not and fault == "cut the link")]
    injections = cuttable if "faults" in args.what else []
    records, stories, broken = [], [], []
    try:
        for link in measurements:
            _try(broken, records, f"{link[0]} hosts, {links.link_name(*link[1:])}", speed.measure, *link, bool(why_not))
        for fault in injections:
            _try(broken, stories, fault, _inject, fault, args.timeout_s, why_not)
    except KeyboardInterrupt:
        print("\ninterrupted; the hosts are removed", file=sys.stderr)
        return 130
    if records:
        print(f"\n{speed.table(records)}\n")
    if stories:
        print(f"\n{faults.table(stories)}\n")
    if args.json and (why_not or broken):
        reason = "links that are not shaped tell little" if why_not else "something could not be measured"
        print(f"{args.json} is left as it is: {reason}.")
    elif args.json:
        command = shlex.join(["python", "-m", "tools.cluster", *(sys.argv[1:] if argv is None else argv)])
        speed.save(args.json, command, facts, records, stories)
        print(f"{args.json} is written.")
    return int(bool(broken))


def _links(args, why_not):
    """Return (hosts, Mb/s, ms) of each job: the link that is not limited first, the predictions start from it.

    Every bandwidth with every delay for the first number of hosts, and with the first delay for the others.
    """
    if why_not:
        return [(2, None, 0)]
    plain = [(n, None, 0) for n in args.hosts]
    asked = [(args.hosts[0], m, d) for d in args.delays for m in args.bandwidths]
    asked += [(n, m, args.delays[0]) for n in args.hosts[1:] for m in args.bandwidths]
    return sorted(dict.fromkeys(plain + asked), key=lambda link: link[0])


def _inject(fault, timeout_s, why_not):
    with hosts.loopback(2) if why_not else hosts.namespaces(2) as cluster:
        return faults.inject(cluster, fault, timeout_s)


def _try(broken, found, name, job, *args):
    began = time.monotonic()
    try:
        found.append(job(*args))
        outcome = "done"
    except (RuntimeError, TimeoutError) as error:
        broken.append(error)
        outcome = f"failed: {error}"
    print(f"{time.monotonic() - began:5.0f} s  {name}: {outcome}", file=sys.stderr, flush=True)


def _parse(argv):
    parser = argparse.ArgumentParser(prog="python -m tools.cluster", description=__doc__)
    parser.add_argument("what", nargs="*", default=["speed", "faults"], help="speed, faults, or both (the default)")
    parser.add_argument("--hosts", type=int, nargs="+", choices=range(2, 9), default=[2, 4], metavar="N")
    parser.add_argument("--bandwidths", type=_bandwidth, nargs="+", default=speed.BANDWIDTHS, help="Mb/s, or none")
    parser.add_argument("--delays", type=_not_negative, nargs="+", default=speed.DELAYS_MS, help="ms, one way")
    parser.add_argument("--faults", nargs="+", choices=faults.FAULTS, default=list(faults.FAULTS))
    parser.add_argument("--timeout-s", type=_positive, default=5, help="time-out of a collective in the fault jobs")
    parser.add_argument("--loopback", action="store_true", help="make no namespaces")
    parser.add_argument("--json", type=Path, metavar="PATH", help=f"keep the figures; the chapter reads {RESULT.name}")
    args = parser.parse_args(argv)
    if wrong := set(args.what) - {"speed", "faults"}:
        parser.error(f"expected speed or faults, got {' '.join(sorted(wrong))}")
    return args


def _positive(text):
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text}")
    return value


def _not_negative(text):
    return 0 if float(text) == 0 else _positive(text)


def _bandwidth(text):
    return None if text == "none" else _positive(text)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that hosts are removed then, too
    sys.exit(main())
