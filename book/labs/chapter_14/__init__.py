"""The laboratory of chapter 14, inside the layers: tensor and sequence parallelism."""

from typing import TYPE_CHECKING

from d2lite._install import missing
from notebook_ranks.shared.lazy_names import lazy_names

from .rank_traffic_figure import rank_traffic_figure

if TYPE_CHECKING:
    from .autograd_collectives import (
        PairedCollective,
        add_partials,
        copy_to_ranks,
        cut_places,
        gather_places,
        part_along,
        part_sizes,
        scatter_places,
        split_places,
        summed,
    )
    from .five_mlps import mlps_right
    from .split_table import apart_after_four_steps, counted_step, from_one_device, params_of, zeros_for
    from .tensor_parallel import (
        ColumnParallel,
        RowParallel,
        VocabularyParallel,
        index_in_part,
        shard_block,
        shard_network,
        shard_sequence,
        shard_vocabulary,
        sharded_cross_entropy,
        tensor_step,
    )

__all__, __getattr__, __dir__ = lazy_names(__name__, missing)
