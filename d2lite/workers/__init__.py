"""Real ranks for functions written in cells: a pool of processes, their failures, and faults to choose from."""

from d2lite.workers.batch_mode import use_batch_mode
from d2lite.workers.failures import WorkersError
from d2lite.workers.faults import CAUSES, FAULTS, Job, first_not_finite, simulated_records, train_job
from d2lite.workers.flight_recorder import Collective, FlightRecord, read_recorder
from d2lite.workers.hang_diagnosis import Diagnosis, diagnose_hang, first_mismatch
from d2lite.workers.pool import Workers
from d2lite.workers.rank_support import warn_without_ranks
from d2lite.workers.tempdir import make_tempdir, remove_tempdir
from d2lite.workers.torchrun_forks import torchrun_forks

__all__ = [
    "CAUSES",
    "Collective",
    "Diagnosis",
    "FAULTS",
    "FlightRecord",
    "Job",
    "Workers",
    "WorkersError",
    "diagnose_hang",
    "first_mismatch",
    "first_not_finite",
    "make_tempdir",
    "read_recorder",
    "remove_tempdir",
    "simulated_records",
    "torchrun_forks",
    "train_job",
    "use_batch_mode",
    "warn_without_ranks",
]
