"""Training runs as an HTML table."""

import html
import math
from collections.abc import Sequence

from d2lite.figures.palette import DASHES, style
from d2lite.figures.speed_up import speed_ups
from d2lite.training.run import Run, legends

__all__ = ["runs_table"]

_HEADS = ("run", "test accuracy", "s/epoch", "examples/s", "speed-up", "status", "devices", "data")


def runs_table(runs: Sequence[Run]) -> str:
    """Return the runs as an HTML table, each with the stroke of its curve."""
    rows = []
    for i, (run, legend, speed_up) in enumerate(zip(runs, legends(runs), speed_ups(runs), strict=True)):
        cells = [
            _number(run.accuracy, ".1%"),
            _number(run.seconds_per_epoch, ".3g"),
            _number(run.examples_per_s, ",.0f") if run.seconds else "–",
            _number(speed_up, ".2f", "×"),
            run.status,
            f"{run.devices}, busy with other programs" if run.disturbance else run.devices or "–",
            run.dataset or "–",
        ]
        body = "".join(f"<td>{html.escape(str(cell))}</td>" for cell in cells)
        rows.append(f'<tr><th scope="row">{_stroke(i)} {html.escape(legend)}</th>{body}</tr>')
    rows = rows or [f'<tr><td colspan="{len(_HEADS)}">No run yet: press Train.</td></tr>']
    heads = "".join(f'<th scope="col">{head}</th>' for head in _HEADS)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _number(value: float, form: str, unit: str = "") -> str:
    return f"{value:{form}}{unit}" if math.isfinite(value) else "–"


def _stroke(i: int) -> str:
    """The stroke of the i-th run's curve, as a small picture."""
    colour, dash, _ = style(i)
    return (
        '<svg width="30" height="8" aria-hidden="true"><path d="M0 4h30" fill="none" '
        f'stroke="{colour}" stroke-width="3" stroke-dasharray="{DASHES[dash]}"/></svg>'
    )
