"""Pictures: pure functions, which take every number from the runs, traces and predictions that they are given.

Each module is loaded when it is first used, so that texts and tables need no plotting package.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from d2lite.figures.all_reduce_times import all_reduce_figure
    from d2lite.figures.collective_shapes import collective_shape
    from d2lite.figures.collective_steps import collective_figure, least_n_bytes
    from d2lite.figures.comparison import bands_figure, heat_map_figure, intervals_figure
    from d2lite.figures.divergence import divergence_figure, tensor_picture
    from d2lite.figures.figure import Figure
    from d2lite.figures.figure_layout import add_key, label_ends, layout, ticks_at
    from d2lite.figures.ledger_tables import (
        bias,
        exercises_html,
        ledger_html,
        predictions_html,
        predictions_of,
        predictions_summary,
    )
    from d2lite.figures.memory import memory_bars
    from d2lite.figures.mesh_step import mesh_step_figure
    from d2lite.figures.palette import COLOURS, GREY, PALETTE, RED, ink_on, style
    from d2lite.figures.partitioning import partition_figure, traffic_bars
    from d2lite.figures.rank_traffic import rank_traffic_figure
    from d2lite.figures.replica_drift import drift_figure
    from d2lite.figures.scaling import efficiency_figure, predicted_and_measured, step_figure
    from d2lite.figures.sequence_diagram import sequence_figure
    from d2lite.figures.shard_normalisation import shard_normalisation_figure
    from d2lite.figures.table import html_table, runs_table
    from d2lite.figures.timeline import timeline_figure
    from d2lite.figures.training_curves import curves, losses

__all__ = [
    "COLOURS",
    "Figure",
    "GREY",
    "PALETTE",
    "RED",
    "add_key",
    "all_reduce_figure",
    "bands_figure",
    "bias",
    "collective_figure",
    "collective_shape",
    "curves",
    "divergence_figure",
    "drift_figure",
    "efficiency_figure",
    "exercises_html",
    "heat_map_figure",
    "html_table",
    "ink_on",
    "intervals_figure",
    "label_ends",
    "layout",
    "least_n_bytes",
    "ledger_html",
    "losses",
    "memory_bars",
    "mesh_step_figure",
    "partition_figure",
    "predicted_and_measured",
    "predictions_html",
    "predictions_of",
    "predictions_summary",
    "rank_traffic_figure",
    "runs_table",
    "sequence_figure",
    "shard_normalisation_figure",
    "step_figure",
    "style",
    "tensor_picture",
    "ticks_at",
    "timeline_figure",
    "traffic_bars",
]

_ROOM = {
    "all_reduce_times": ("all_reduce_figure",),
    "collective_shapes": ("collective_shape",),
    "collective_steps": ("collective_figure", "least_n_bytes"),
    "figure": ("Figure",),
    "figure_layout": ("add_key", "label_ends", "layout", "ticks_at"),
    "comparison": ("bands_figure", "heat_map_figure", "intervals_figure"),
    "divergence": ("divergence_figure", "tensor_picture"),
    "rank_traffic": ("rank_traffic_figure",),
    "replica_drift": ("drift_figure",),
    "ledger_tables": (
        "bias",
        "exercises_html",
        "ledger_html",
        "predictions_html",
        "predictions_of",
        "predictions_summary",
    ),
    "memory": ("memory_bars",),
    "mesh_step": ("mesh_step_figure",),
    "palette": ("COLOURS", "GREY", "PALETTE", "RED", "style", "ink_on"),
    "partitioning": ("partition_figure", "traffic_bars"),
    "scaling": ("efficiency_figure", "predicted_and_measured", "step_figure"),
    "sequence_diagram": ("sequence_figure",),
    "shard_normalisation": ("shard_normalisation_figure",),
    "table": ("html_table", "runs_table"),
    "timeline": ("timeline_figure",),
    "training_curves": ("curves", "losses"),
}
_WHERE = {name: module for module, names in _ROOM.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"d2lite.figures.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'd2lite.figures' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
