"""Predicted against published: efficiencies from papers, and what the cost model says without fitting."""

from benchmarks.report import Row
from book.papers import TOLERANCE, compare

__all__ = ["rows"]


def rows():
    """Return one row a published case: ours is predicted; where it is off, the note says which assumption fails."""
    return [_row(case) for case in compare()]


def _row(case):
    row = Row(case["case"], "%", [case["predicted"]], [case["published"]], "published")
    row.note = f"predicted, {case['difference']:+.1f} points"
    if abs(case["difference"]) > TOLERANCE:
        row.note += f"; what fails: {case['fails'].split('. ')[0]}"
    return row
