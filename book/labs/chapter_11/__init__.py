"""The laboratory of chapter 11, the bug museum: the bug of a step, replicas that are no copies, where two runs part."""

from typing import TYPE_CHECKING

from d2lite._install import missing
from notebook_ranks.shared.lazy_names import lazy_names

from .check_replicas import check_replicas
from .check_step import check_step
from .divergence_figure import divergence_figure
from .replica_drift import replica_drift

if TYPE_CHECKING:
    from .bug_exhibit import DRIFT, LATER, LONG, NOTHING, SHORT, SIGNS, SIZES, BugExhibit
    from .divergence import Comparison, Divergence, compare_replicas, find_divergence
    from .divergence_figure import tensor_picture
    from .divergence_finder import DivergenceFinder
    from .museum import Museum
    from .replica_drift import History, step_history
    from .replica_drift_figure import drift_figure
    from .verdict import Verdict
    from .write_recorder import StepRecord, Write, record_steps

__all__, __getattr__, __dir__ = lazy_names(__name__, missing)
