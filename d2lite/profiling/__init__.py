"""All that is measured: recorded steps, their critical path, and the memory that a step holds."""

from typing import TYPE_CHECKING

# both at once: each file has its function's name (see lazy_names)
from d2lite.profiling.critical_path import critical_path
from d2lite.profiling.step_times import step_times
from notebook_ranks.shared.lazy_names import lazy_names

if TYPE_CHECKING:
    from d2lite.profiling.collective_calls import CollectiveCall, recorded_collectives
    from d2lite.profiling.instrumented import record_buckets, record_ddp, record_train_batch
    from d2lite.profiling.memory_held import bytes_held
    from d2lite.profiling.other_programs import OtherPrograms
    from d2lite.profiling.recorder import Recorder
    from d2lite.profiling.step_times import merged_step, step_parts
    from d2lite.profiling.watched_training import ImageGuesses, RecordedStep, train_watched
    from notebook_ranks.shared.activations_held import activations_held

__all__, __getattr__, __dir__ = lazy_names(__name__)
