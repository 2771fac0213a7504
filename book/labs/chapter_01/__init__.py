"""The laboratory of chapter 1, ways to split: what each way costs, and a network in stages."""

from typing import TYPE_CHECKING

from d2lite._install import missing
from notebook_ranks.shared.lazy_names import lazy_names

from .partition_figure import partition_figure

if TYPE_CHECKING:
    from .model_parallel import ModelParallel, check_stages, describe_stages, train_model_parallel
    from .partition_explorer import NETS, PartitionExplorer, sizes_of
    from .partition_figure import traffic_bars
    from .partitioning import all_ways, bytes_sent, layers_of, messages, stages
    from .stage_recording import record_stages

__all__, __getattr__, __dir__ = lazy_names(__name__, missing)
