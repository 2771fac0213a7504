"""The laboratory of chapter 1, ways to split: what each way costs, and a network in stages."""

from typing import TYPE_CHECKING

from d2lite._install import missing
from notebook_ranks.shared.lazy_names import lazy_names

from .partition_figure import partition_figure

if TYPE_CHECKING:
    from .held import held_in_all_ways
    from .model_parallel import ModelParallel, check_stages
    from .partition_explorer import NETS, PartitionExplorer, sizes_of
    from .partition_figure import traffic_bars
    from .partitioning import all_ways, bytes_sent, layers_of, messages, stages
    from .stage_recording import record_stages
    from .tensor_parallel import forward_in_parts, network_of

__all__, __getattr__, __dir__ = lazy_names(__name__, missing)
