"""The laboratory of chapter 10, batch normalisation over several devices."""

from typing import TYPE_CHECKING

from d2lite._install import missing
from notebook_ranks.shared.lazy_names import lazy_names

from .shard_normalisation_figure import shard_normalisation_figure

if TYPE_CHECKING:
    from .figure_explorer import FigureExplorer
    from .sync_batchnorm import (
        SyncBatchNorm,
        convert_sync_batchnorm,
        gradient_over_ranks,
        moments_over_ranks,
        sum_over_ranks,
    )

__all__, __getattr__, __dir__ = lazy_names(__name__, missing)
