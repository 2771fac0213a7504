"""Real ranks for functions written in cells: the processes, their failures, and faults to choose from."""

from d2lite.workers.batch_mode import use_batch_mode
from d2lite.workers.failures import WorkersError
from d2lite.workers.faults import FAULTS, diagnose, five_steps
from d2lite.workers.pool import Workers
from d2lite.workers.tempdir import make_tempdir, remove_tempdir

__all__ = [
    "FAULTS",
    "Workers",
    "WorkersError",
    "diagnose",
    "five_steps",
    "make_tempdir",
    "remove_tempdir",
    "use_batch_mode",
]
