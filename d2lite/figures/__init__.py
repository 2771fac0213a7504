"""Pictures: pure functions, which take every number from the runs, traces and predictions that they are given.

Each module is loaded when it is first used, so that texts and tables need no plotting package.
"""

from typing import TYPE_CHECKING

from d2lite._install import missing
from notebook_ranks.shared.lazy_names import lazy_names

if TYPE_CHECKING:
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
    from d2lite.figures.palette import COLOURS, GREY, PALETTE, RED, ink_on, style
    from d2lite.figures.table import html_table, runs_table
    from d2lite.figures.timeline import timeline_figure
    from d2lite.figures.training_curves import curves, losses

__all__, __getattr__, __dir__ = lazy_names(__name__, missing)
