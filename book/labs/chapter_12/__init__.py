"""The laboratory of chapter 12, when a job hangs: whose fault it is."""

from typing import TYPE_CHECKING

from d2lite._install import missing
from notebook_ranks.shared.lazy_names import lazy_names

if TYPE_CHECKING:
    from .sequence_diagram import sequence_figure
    from .whodunit import Whodunit

__all__, __getattr__, __dir__ = lazy_names(__name__, missing)
