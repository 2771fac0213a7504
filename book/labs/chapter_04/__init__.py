"""The laboratory of chapter 4, all-reduce: collectives step by step, and the link that fits measured times."""

from typing import TYPE_CHECKING

from d2lite._install import missing
from notebook_ranks.shared.lazy_names import lazy_names

from .all_reduce_figure import all_reduce_figure
from .all_reduce_many import all_reduce_many
from .all_reduce_on_ranks import all_reduce_on_ranks
from .messages_seconds import messages_seconds

if TYPE_CHECKING:
    from .all_reduce_many import assign_owners
    from .collective_shapes import collective_shape
    from .collective_stepper import CollectiveStepper, trace_collective
    from .collective_steps import collective_figure, least_n_bytes
    from .fitting import Fit, fit_device, fit_link
    from .timed_on_ranks import SIZES, measured_seconds, time_all_reduces, time_steps

__all__, __getattr__, __dir__ = lazy_names(__name__, missing)
