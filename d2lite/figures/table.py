"""HTML tables: of training runs, and of any rows that a cell has computed."""

import html
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from d2lite.figures.palette import stroke
from d2lite.figures.speed_up import speed_ups
from d2lite.training.run_record import Run, legends
from notebook_ranks.shared.notebook import WRAP_RULE

__all__ = ["Table", "html_table", "runs_table"]

_NONE = "–"  # a run has no such number
_HEADS = ("run", "test accuracy", "s/epoch", "examples/s", "speed-up", "status", "devices", "data")
_WORDS = ("status", "devices", "data")  # columns with a class, by which the style sheet of a panel finds them

_NUMBER = re.compile(r"[-+\u2212]?[0-9][0-9.,]*(e[-+]?[0-9]+)?([ ×%n].*)?|[–-]|nan|-?inf")  # and its unit
# JupyterLab's own tables are of 12 px, striped, and break words where they are narrow
_TABLE_RULE = """.d2lite-table { overflow-x: auto; }
.d2lite-table table { border-collapse: collapse; font-size: 14px; width: auto; margin: 4px 0; table-layout: auto; }
.d2lite-table tr { background: none !important; border-bottom: 1px solid rgba(121,121,121,0.35); }
.d2lite-table th, .d2lite-table td { text-align: left !important; padding: 3px 20px 3px 0 !important;
  font-weight: 400; white-space: normal; overflow-wrap: normal; word-break: normal; max-width: 480px; }
.d2lite-table thead th { font-weight: 600; vertical-align: bottom; }
.d2lite-table .number { text-align: right !important; font-variant-numeric: tabular-nums; white-space: nowrap; }"""


@dataclass(frozen=True)
class Table:
    """Rows of texts under their heads: a notebook shows an HTML table, a terminal aligned columns."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def _columns_of_numbers(self) -> list[bool]:
        cells = [[row[i] for row in self.rows if row[i]] for i in range(len(self.header))]
        return [bool(column) and all(map(_NUMBER.fullmatch, column)) for column in cells]

    def _repr_html_(self) -> str:
        kinds = [' class="number"' if is_number else "" for is_number in self._columns_of_numbers()]
        heads = zip(self.header, kinds, strict=True)
        head = "".join(f'<th scope="col"{kind}>{html.escape(text)}</th>' for text, kind in heads)
        body = "".join(
            f'<tr><th scope="row"{kinds[0]}>{html.escape(first)}</th>'
            + "".join(f"<td{kind}>{html.escape(cell)}</td>" for cell, kind in zip(others, kinds[1:], strict=True))
            + "</tr>"
            for first, *others in self.rows
        )
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f'<style>{WRAP_RULE}{_TABLE_RULE}</style><div class="d2lite-table" tabindex="0">{table}</div>'

    def __repr__(self) -> str:
        are_numbers = self._columns_of_numbers()
        widths = [max(map(len, column)) for column in zip(self.header, *self.rows, strict=True)]
        lines = []
        for row in (self.header, *self.rows):
            columns = zip(row, widths, are_numbers, strict=True)
            lines.append("  ".join(f"{text:{'>' if number else '<'}{width}}" for text, width, number in columns))
        return "\n".join(line.rstrip() for line in lines)


def html_table(rows: Iterable[Sequence[object]], header: Sequence[str]) -> Table:
    """Return a table, which a cell shows by its last line or by `display`; columns of numbers are aligned on the right.

    `rows` have a cell for each head in `header`: texts, or objects that are shown as `str` writes them. The first
    column names its row.

    Example:
        >>> html_table([("LeNet", "516 KB"), ("MLP", "1.2 MB")], ["net", "size"])
        net      size
        LeNet  516 KB
        MLP    1.2 MB
    """
    heads, cells = tuple(map(str, header)), tuple(tuple(map(str, row)) for row in rows)
    if not heads:
        raise ValueError("header: expected the head of each column, got none.")
    for i, row in enumerate(cells):
        if len(row) != len(heads):
            raise ValueError(f"rows: expected {len(heads)} cells, as there are heads, got {len(row)} in row {i}.")
    return Table(heads, cells)


def runs_table(runs: Sequence[Run]) -> str:
    """Return the runs as an HTML table, each with the stroke of its curve.

    Once a run has ended, a column in which no run has a value is left out.
    """
    rows = []
    for i, (run, legend, speed_up) in enumerate(zip(runs, legends(runs), speed_ups(runs), strict=True)):
        cells = [
            _cell(run.accuracy, ".1%"),
            _cell(run.seconds_per_epoch, ".3g"),
            _cell(run.examples_per_s, ",.0f") if run.seconds else _NONE,
            _cell(speed_up, ".2f", "×"),
            run.status,
            f"{run.devices}, busy with other programs" if run.disturbance else run.devices or _NONE,
            run.dataset or _NONE,
        ]
        rows.append([f"{stroke(i)} {html.escape(legend)}", *(html.escape(str(cell)) for cell in cells)])
    shown = list(range(len(_HEADS)))
    if any(run.status != "running" for run in runs):
        needs = {"speed-up": "s/epoch"}  # it is compared when there is a run to compare with
        at = [_HEADS.index(needs.get(head, head)) for head in _HEADS]
        shown = [j for j in shown if any(row[at[j]] != _NONE for row in rows)]
    kinds = [f' class="{head}"' if head in _WORDS else "" for head in _HEADS]
    body = [
        f'<tr><th scope="row">{row[0]}</th>' + "".join(f"<td{kinds[j]}>{row[j]}</td>" for j in shown[1:]) + "</tr>"
        for row in rows
    ] or [f'<tr><td colspan="{len(_HEADS)}">No run yet: press Train.</td></tr>']
    heads = "".join(f'<th scope="col"{kinds[j]}>{_HEADS[j]}</th>' for j in shown)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _cell(value: float, form: str, unit: str = "") -> str:
    return f"{value:{form}}{unit}" if math.isfinite(value) else _NONE
