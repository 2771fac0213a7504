"""The laboratory of chapter 14, inside the layers: tensor, context and expert parallelism."""

from typing import TYPE_CHECKING

from d2lite._install import missing
from notebook_ranks.shared.lazy_names import lazy_names

from .rank_traffic_figure import rank_traffic_figure

if TYPE_CHECKING:
    from .autograd_collectives import (
        PairedCollective,
        add_partials,
        all_to_all,
        copy_to_ranks,
        exchanged,
        gather_places,
        part_along,
        part_sizes,
        scatter_places,
        split_places,
        summed,
        to_next,
    )
    from .context_parallel import (
        PlacesAttention,
        add_block,
        causal_attention,
        check_places,
        context_step,
        recut,
        ring_attention,
        split_text,
        ulysses_attention,
    )
    from .expert_parallel import Experts, ExpertsOverRanks, by_expert, rebalance, route, tokens_per_rank
    from .split_table import apart_after_four_steps, counted_step, params_of, zeros_for
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
