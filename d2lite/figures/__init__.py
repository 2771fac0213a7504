"""Pictures, pure: every number in them comes from the runs, traces and predictions that they are given."""

from d2lite.figures.collectives import collective_figure, least_n_bytes
from d2lite.figures.palette import GREY, PALETTE, style
from d2lite.figures.partitioning import partition_figure, traffic_bars
from d2lite.figures.runs import curves, layout, seconds_per_epoch
from d2lite.figures.scaling import efficiency_figure, predicted_and_measured, step_figure
from d2lite.figures.table import runs_table
from d2lite.figures.timeline import timeline_figure

__all__ = [
    "GREY",
    "PALETTE",
    "collective_figure",
    "curves",
    "efficiency_figure",
    "layout",
    "least_n_bytes",
    "partition_figure",
    "predicted_and_measured",
    "runs_table",
    "seconds_per_epoch",
    "step_figure",
    "style",
    "timeline_figure",
    "traffic_bars",
]
