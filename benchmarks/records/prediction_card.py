"""A prediction card against a cluster that was changed on purpose: does the verdict name what was changed?

`python -m benchmarks.records.prediction_card --save prediction-card-2-cores` makes the card on two hosts (network
namespaces, root), then measures steps again on the same link, with half its bandwidth, with a delay, with a rank that
is slower, and with all gradients sent in one bucket after the backward pass. The card knows nothing of the changes. A
run beside which other programs took part of the processors is repeated; nothing else is left out.
"""

import argparse
import json
import resource
import signal
import statistics
import sys
import time
from pathlib import Path

from benchmarks.report import RESULTS, command_line, keep, machine, markdown_row
from d2lite.labs.chapter_16 import card_from_json, compare_with_measured, measured_from_json
from tools.cluster import hosts, links, speed

__all__ = ["main", "tables"]

MBIT = 200
# what is changed -> (the term of the card that is wrong then, Mb/s, ms of delay, options of the script)
CHANGES = {
    "nothing": (None, MBIT, 0, []),
    "half the bandwidth": ("bandwidth", MBIT / 2, 0, []),
    "a delay of 15 ms": ("latency", MBIT, 15, []),
    "rank 1 is 300 ms slower": ("straggler", MBIT, 0, ["--slow-rank=1", "--slow-s=0.3"]),
    "one bucket, no overlap": ("overlap", MBIT, 0, ["--one-bucket"]),
}
LINKS = (100, 200, 500, 1000)  # Mb/s: on each, how much communication runs beside the computation
MOST_OTHERS = 0.15  # of the processors' time; more, and the run is repeated
TRIES = 5
LIMIT_S = 120  # for one run


def processor_seconds():
    """Return (seconds that the processors of this machine have worked, those of them for this process's children)."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split()[1:9]]
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return (sum(ticks) - ticks[3] - ticks[4]) / 100, sum(one.ru_utime + one.ru_stime for one in used)


def wait_for_quiet(limit_s=60):
    """Wait, so many seconds at most, until the processors have worked for less than a tenth of a second."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        before = processor_seconds()[0]
        time.sleep(1)
        if processor_seconds()[0] - before < 0.1:
            return


def measured_once(mbit, delay_ms, arguments):
    """Run the script on fresh hosts; return (its card, what it measured, the share of other programs), as data."""
    wait_for_quiet()
    (all_s, own_s), began = processor_seconds(), time.monotonic()
    with hosts.namespaces(2, mbit, delay_ms) as cluster:
        path = cluster.folder / "card.json"
        options = ["--card", str(path), *arguments]
        measured = speed.run_script(cluster, "measure_card", options, LIMIT_S, links.link_name(mbit, delay_ms))
        card = json.loads(path.read_text())
    (all_now_s, own_now_s), seconds = processor_seconds(), time.monotonic() - began
    others = (all_now_s - all_s - own_now_s + own_s) / (speed.machine()["cores"] * seconds)
    return card, measured, max(0.0, others)


def measured(mbit, delay_ms, arguments, tries):
    """Return the first of so many runs with few other programs beside it, or the one with the fewest, as data."""
    runs = []
    while len(runs) < tries and (not runs or runs[-1][2] > MOST_OTHERS):
        runs.append(measured_once(mbit, delay_ms, arguments))
        print(f"{links.link_name(mbit, delay_ms)}: other programs took {runs[-1][2]:.0%} of the processors", flush=True)
    card, found, others = min(runs, key=lambda run: run[2])
    return {"card": card, "measured": found, "others": others, "runs": len(runs)}


def row_of(card, change, run):
    """Return one row as a dictionary."""
    expected, mbit, delay_ms, arguments = CHANGES[change]
    verdict = compare_with_measured(card, measured_from_json(json.dumps(run["measured"])))
    return {
        "change": change,
        "expected": expected,
        "link": links.link_name(mbit, delay_ms),
        "arguments": arguments,
        "holds": verdict.holds,
        "culprit": verdict.culprit,
        "predicted_s": verdict.predicted_s,
        "measured_s": verdict.measured_s,
        "terms": verdict.terms,
        "words": verdict.words,
    } | {name: run[name] for name in ("measured", "others", "runs")}


def hidden_row(mbit, run):
    """Return the communication that runs beside the computation on a link, predicted by a card made there, measured."""
    card = card_from_json(json.dumps(run["card"]))
    measured = measured_from_json(json.dumps(run["measured"]))
    step_s = statistics.median(measured.step_s)
    return {
        "mbit": mbit,
        "predicted_s": card.seconds,
        "measured_s": step_s,
        "communication_s": measured.communication_s,
        "predicted_hidden_s": card.hidden_s,
        "measured_hidden_s": max(measured.compute_s) + measured.communication_s - step_s,
    } | {name: run[name] for name in ("measured", "others", "runs")}


def _ms(seconds):
    return f"{1e3 * seconds:.0f} ms"


def tables(rows, hidden):
    """Return the rows as two tables in Markdown."""
    head = ["changed", "wrong term", "predicted step", "measured", "verdict", "largest terms, measured - predicted"]
    lines = [markdown_row(head), markdown_row(["---", "---", "---:", "---:", "---", "---"])]
    for row in rows:
        largest = sorted(row["terms"], key=lambda name: -abs(row["terms"][name]))[:2]
        terms = ", ".join(f"{name} {1e3 * row['terms'][name]:+.0f} ms" for name in largest)
        verdict = "holds" if row["holds"] else row["culprit"] or "not sure"
        cells = [row["change"], row["expected"] or "none", _ms(row["predicted_s"]), _ms(row["measured_s"]), verdict]
        lines.append(markdown_row([*cells, terms]))
    names = ("predicted_s", "measured_s", "communication_s", "predicted_hidden_s", "measured_hidden_s")
    head = ["link", "predicted step", "measured", "communication", "beside the computation, predicted", "measured"]
    lines += ["", markdown_row(head), markdown_row(["---"] + ["---:"] * 5)]
    for row in hidden:
        lines.append(markdown_row([links.link_name(row["mbit"], 0), *(_ms(row[name]) for name in names)]))
    return "\n".join(lines)


def main(argv=None):
    """Measure, print the tables, and keep them if asked; return 0, or 1 where hosts cannot be made."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.records.prediction_card", description=__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="runs for each change")
    parser.add_argument("--changes", nargs="*", choices=CHANGES, default=list(CHANGES))
    parser.add_argument("--links", type=int, nargs="*", default=LINKS, help="Mb/s of links to compare overlap on")
    parser.add_argument("--tries", type=int, default=TRIES, help="runs at most, where other programs disturb")
    parser.add_argument("--options", nargs="*", default=[], help="for the script, name=value, without the two dashes")
    parser.add_argument("--save", metavar="NAME", help="keep it in benchmarks/results/NAME.json and .md")
    args = parser.parse_args(argv)
    if why_not := hosts.why_no_namespaces():
        print(f"No network namespaces: {why_not}. Without cables that can be changed there is nothing to measure.")
        return 1
    facts, options = machine(), [f"--{option}" for option in args.options]
    made = measured(MBIT, 0, options, args.tries)
    card, rows = card_from_json(json.dumps(made["card"])), []
    for _ in range(args.repeats):
        for change in args.changes:
            _, mbit, delay_ms, arguments = CHANGES[change]
            rows.append(row_of(card, change, measured(mbit, delay_ms, [*options, *arguments], args.tries)))
            print(f"{change}: {rows[-1]['words']}", flush=True)
    hidden = [hidden_row(mbit, measured(mbit, 0, options, args.tries)) for mbit in args.links]
    rows.sort(key=lambda row: args.changes.index(row["change"]))
    print(tables(rows, hidden))
    if args.save:
        command = command_line("benchmarks.records.prediction_card", argv)
        keep(args.save, command, facts, {"card": made["card"], "others": made["others"], "rows": rows, "links": hidden})
        words = " · ".join(f"{name} {value}" for name, value in facts.items())
        about = f"The card: {card.what}, {links.link_name(MBIT, 0)}."
        text = f"`{command}`\n\n{words}\n\n{about}\n\n{tables(rows, hidden)}\n"
        (RESULTS / f"{args.save}.md").write_text(text)
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that hosts are removed then, too
    sys.exit(main())
