"""The laboratory of chapter 7, many machines: a job with one fault, on ranks of one's choice."""

from typing import TYPE_CHECKING

from d2lite._install import missing
from notebook_ranks.shared.lazy_names import lazy_names

if TYPE_CHECKING:
    from .fault_lab import FaultLab
    from .faults import CAUSES, FAULTS, Job, first_not_finite, simulated_records, train_job

__all__, __getattr__, __dir__ = lazy_names(__name__, missing)
