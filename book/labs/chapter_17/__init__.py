"""The laboratory of chapter 17, along the text and among experts: context and expert parallelism."""

from typing import TYPE_CHECKING

from d2lite._install import missing
from notebook_ranks.shared.lazy_names import lazy_names

if TYPE_CHECKING:
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
    from .context_rows import context_row, output_and_gradients, random_qkv
    from .exchanges import all_to_all, exchanged, to_next
    from .expert_parallel import Experts, ExpertsOverRanks, by_expert, rebalance, route, tokens_per_rank

__all__, __getattr__, __dir__ = lazy_names(__name__, missing)
