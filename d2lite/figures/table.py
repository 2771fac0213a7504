"""Runs as a table to read and as a file to keep."""

import html
import json
import math
import os
import platform
import time
import uuid
from dataclasses import asdict
from pathlib import Path

from d2lite.figures.runs import labels, style
from d2lite.figures.svg import DASHES

__all__ = ["SCHEMA", "as_record", "save", "table"]

SCHEMA = "d2lite-runs/1"
_HEADS = ("run", "test accuracy", "s/epoch", "examples/s", "speed-up", "status", "devices", "data")


def speed_ups(runs):
    """Return each run's examples a second over those of the first run that has a time; NaN where there is none."""
    base = next((run.examples_per_s for run in runs if run.seconds), math.nan)
    return [run.examples_per_s / base if run.seconds else math.nan for run in runs]


def table(runs):
    """Return the runs as an HTML table, each with the stroke of its curve."""
    rows = []
    for i, (run, label, speed_up) in enumerate(zip(runs, labels(runs), speed_ups(runs), strict=True)):
        cells = [
            _number(run.accuracy, ".1%"),
            _number(run.seconds_per_epoch, ".3g"),
            _number(run.examples_per_s, ",.0f") if run.seconds else "–",
            _number(speed_up, ".2f", "×"),
            run.status,
            run.devices or "–",
            run.dataset or "–",
        ]
        body = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
        rows.append(f'<tr><th scope="row">{_stroke(i)} {html.escape(label)}</th>{body}</tr>')
    rows = rows or [f'<tr><td colspan="{len(_HEADS)}">No run yet: press Train.</td></tr>']
    heads = "".join(f'<th scope="col">{head}</th>' for head in _HEADS)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def as_record(runs, function=""):
    """Return what a run file holds: plain dicts and lists; NaN and infinities, which JSON lacks, are None."""
    import d2lite

    return {
        "schema": SCHEMA,
        "saved": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "function": function,
        "versions": {"d2lite": d2lite.__version__, "system": platform.platform()},
        "runs": [
            _plain(
                {"label": label}
                | asdict(run)
                | {"seed": run.settings.get("seed"), "test_accuracy": run.accuracy}
                | {"seconds_per_epoch": run.seconds_per_epoch}
                | {"examples_per_s": run.examples_per_s if run.seconds else None}
            )
            for run, label in zip(runs, labels(runs), strict=True)
        ],
    }


def save(runs, path=None, function=""):
    """Write the runs as JSON and return the path: whole or not at all, an existing file only if `path` names it.

    By default `d2lite-runs-<date>-<time>.json` in the working directory. Raises OSError where it cannot be written.
    """
    path = Path(path) if path is not None else _free(Path(f"d2lite-runs-{time.strftime('%Y%m%d-%H%M%S')}.json"))
    text = json.dumps(as_record(runs, function), indent=1, allow_nan=False, ensure_ascii=False, default=repr)
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with open(part, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return path


def _free(path):
    """The path, or the first of path-2, path-3, ... that is not there."""
    candidate, n = path, 1
    while candidate.exists():
        n += 1
        candidate = path.with_stem(f"{path.stem}-{n}")
    return candidate


def _plain(value):
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _number(value, form, unit=""):
    return f"{value:{form}}{unit}" if math.isfinite(value) else "–"


def _stroke(i):
    """The stroke of the i-th run's curve, as a small picture."""
    colour, dash, _ = style(i)
    return (
        '<svg width="30" height="8" aria-hidden="true"><path d="M0 4h30" fill="none" '
        f'stroke="{colour}" stroke-width="3" stroke-dasharray="{DASHES[dash]}"/></svg>'
    )
