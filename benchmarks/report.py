"""Rows of the comparison: rounds in turn, medians and spread, a table, a JSON record."""

import json
import os
import platform
import statistics
import sys
from dataclasses import asdict, dataclass, field
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from d2lite import describe, num_cores, num_gpus, try_gpus

__all__ = [
    "RESULTS",
    "Row",
    "command_line",
    "keep",
    "machine",
    "markdown_row",
    "rounds",
    "save",
    "table",
    "write_record",
]

RESULTS = Path(__file__).parent / "results"
_SIGNS = {
    "ratio": "ratio <=",
    "ratio of at least": "ratio >=",
    "speed-up": "speed-up >=",
    "ours": "ours <",
    "worst": "worst <",
    "at least": "ours >=",
}
_WITH_UNIT = ("ours", "worst", "at least")


def rounds(contestants, n, warm_up=None):
    """Run every contestant once a round, `n` rounds, and return {name: [n results]}.

    `contestants` is {name: function}. Each round starts with another one, so that a machine that slows down or speeds
    up favours none. `warm_up` holds what runs once before, its results dropped.
    """
    for run in (warm_up or {}).values():
        run()
    names = list(contestants)
    results = {name: [] for name in names}
    for i in range(n):
        start = i % len(names)
        for name in names[start:] + names[:start]:
            results[name].append(contestants[name]())
    return results


@dataclass
class Row:
    """One line of the table: what was measured of ours and of the peer, round by round.

    `target` is (kind, bound). Kinds: "ratio" and "ratio of at least", ours over the peer's; "speed-up", the peer's over
    ours, at least the bound; "ours", the median below the bound; "worst", all below it; "at least", the median not
    below it. `holds` is what else must be true. A row that could not be measured says why in `skipped`.
    """

    name: str
    unit: str = "s"
    ours: list = field(default_factory=list)
    peer: list = field(default_factory=list)
    peer_name: str = ""
    target: tuple | None = None
    holds: bool = True
    note: str = ""
    skipped: str = ""

    @property
    def ratios(self):
        """Ours over the peer's (for a speed-up the peer's over ours), one a round."""
        faster = self.target is not None and self.target[0] == "speed-up"
        return [p / o if faster else o / p for o, p in zip(self.ours, self.peer, strict=False)]

    @property
    def met(self):
        """Whether the target is met; None where there is none or nothing was measured."""
        if self.target is None or self.skipped:
            return None
        kind, bound = self.target
        value = statistics.median(self.ours if kind in _WITH_UNIT else self.ratios)
        reached = {
            "ratio": value <= bound,
            "ratio of at least": value >= bound,
            "speed-up": value >= bound,
            "ours": value < bound,
            "worst": max(self.ours) < bound,
            "at least": value >= bound,
        }
        return reached[kind] and self.holds

    def cells(self):
        """Return the texts of the row's columns."""
        if self.skipped:
            return [self.name, "-", "-", "-", self._target(), f"skipped: {self.skipped}"]
        met = {None: "", True: "yes", False: "NO"}[self.met]
        return [
            self.name,
            _spread(self.ours, self.unit),
            f"{_spread(self.peer, self.unit)}, {self.peer_name}" if self.peer else "-",
            _spread(self.ratios) if self.peer else "-",
            self._target(),
            "; ".join(text for text in (met, self.note) if text) or "-",
        ]

    def _target(self):
        if self.target is None:
            return "-"
        kind, bound = self.target
        return f"{_SIGNS[kind]} {bound:g}" + (f" {self.unit}".rstrip() if kind in _WITH_UNIT else "")


def _spread(values, unit=""):
    """The median and, of two values or more, the smallest and the largest."""
    text = _number(statistics.median(values))
    if len(values) > 1:
        text += f" ({_number(min(values))} - {_number(max(values))})"
    return f"{text} {unit}".rstrip()


def _number(value):
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def machine(dataset=None):
    """Return what the figures were measured on: device label, cores, load, versions, data set."""
    devices = try_gpus(num_gpus() or num_cores())
    facts = {"date": date.today().isoformat(), "devices": describe(devices), "processor": _processor()}
    facts["cores"] = num_cores()
    if hasattr(os, "getloadavg"):
        facts["load before"] = round(os.getloadavg()[0], 2)
    facts["python"] = platform.python_version()
    for package in ("torch", "torchvision", "plotly", "ipywidgets"):
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            pass
    if dataset is not None:
        facts["data set"] = dataset
    return facts


def _processor():
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(": ")[1] for line in lines if line.startswith("model name"))
    except (OSError, StopIteration, IndexError):
        return platform.processor() or platform.machine()


def table(facts, rows):
    """Return the report as Markdown: a line with the machine, then one line a row."""
    head = ["row", "ours", "peer", "ratio", "target", "met?"]
    lines = [
        " · ".join(f"{name} {value}" for name, value in facts.items()),
        "",
        markdown_row(head),
        markdown_row(["---"] * len(head)),
    ]
    lines += [markdown_row(row.cells()) for row in rows]
    lines += ["", "Medians, in brackets the smallest and the largest; a ratio is taken in each round."]
    return "\n".join(lines)


def markdown_row(cells):
    """Return one line of a table in Markdown."""
    return "| " + " | ".join(cells) + " |"


def command_line(module, argv):
    """Return the command that ran `module` with these arguments; None stands for those of the process."""
    return " ".join([f"python -m {module}", *(sys.argv[1:] if argv is None else argv)])


def write_record(path, record):
    """Write a record to a JSON file."""
    path.write_text(json.dumps(record, indent=1) + "\n")


def keep(name, command, facts, found):
    """Write what a benchmark of its own has found, as plain numbers, to RESULTS/name.json, and print the path."""
    path = RESULTS / f"{name}.json"
    write_record(path, {"command": command, "machine": facts} | found)
    print(path)


def save(name, command, facts, rows, folder=RESULTS):
    """Write the figures to `folder`/name.json and the table to name.md; return the JSON file."""
    folder.mkdir(exist_ok=True)
    record = {"command": command, "machine": facts}
    record["rows"] = [{**asdict(row), "ratios": row.ratios, "met": row.met} for row in rows]
    path = folder / f"{name}.json"
    write_record(path, record)
    path.with_suffix(".md").write_text(f"`{command}`\n\n{table(facts, rows)}\n")
    return path
