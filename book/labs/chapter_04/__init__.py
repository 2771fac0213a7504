"""The laboratory of chapter 4, all-reduce: collectives step by step, and the link that fits measured times."""

from typing import TYPE_CHECKING

from d2lite._install import missing
from notebook_ranks.shared.lazy_names import lazy_names

from .all_reduce_figure import all_reduce_figure

if TYPE_CHECKING:
    from .collective_shapes import collective_shape
    from .collective_stepper import CollectiveStepper, trace_collective
    from .collective_steps import collective_figure, least_n_bytes
    from .fitting import Fit, fit_device, fit_link
    from .timed_on_ranks import SIZES, measured_seconds, time_all_reduces, time_steps

__all__, __getattr__, __dir__ = lazy_names(__name__, missing)
