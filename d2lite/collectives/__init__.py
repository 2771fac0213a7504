"""Which device sends what to which device: schedules, plans, and their execution on tensors and on ranks."""

from typing import TYPE_CHECKING

from d2lite.collectives.execute import execute  # at once: the file has the function's name (see lazy_names)
from notebook_ranks.shared.lazy_names import lazy_names

if TYPE_CHECKING:
    from d2lite.collectives.execute import write_chunk
    from d2lite.collectives.on_devices import all_gather, all_reduce, broadcast, reduce, reduce_scatter
    from d2lite.collectives.plans import ALGORITHMS, COLLECTIVES, make_plan
    from d2lite.collectives.schedule import Move, Plan, Schedule

__all__, __getattr__, __dir__ = lazy_names(__name__)
