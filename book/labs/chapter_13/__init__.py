"""The laboratory of chapter 13, who holds what: ZeRO, and the memory that it needs."""

from typing import TYPE_CHECKING

from d2lite._install import missing
from notebook_ranks.shared.lazy_names import lazy_names

if TYPE_CHECKING:
    from .fsdp_memory import PUBLISHED_MEMORY, PublishedMemory, predict_fsdp_memory
    from .memory import (
        LOSS_N_BYTES,
        MEMORY_MODELS,
        OPTIMIZER_NUMBERS,
        PRECISIONS,
        MemoryModel,
        MemoryPrediction,
        predict_memory,
        transformer_activations,
    )
    from .memory_explorer import MemoryExplorer
    from .memory_figure import memory_bars
    from .one_device import batches, distance, odd_net, train_alone
    from .resident_memory import measured_memory, measured_stages
    from .zero import (
        all_gather_parts,
        backward_on_shard,
        bytes_on_rank,
        cut,
        free_params,
        gather_params,
        momentum_step,
        my_part,
        plain_step,
        reduce_and_free,
        reduce_at_once,
        reduce_scatter_sum,
        shard_layers,
        whole_params,
        zero_1_step,
        zero_2_step,
        zero_3_step,
    )

__all__, __getattr__, __dir__ = lazy_names(__name__, missing)
