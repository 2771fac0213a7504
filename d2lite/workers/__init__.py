"""Real ranks for functions written in cells: the processes, their failures, and faults to choose from."""

from d2lite.workers.batch_mode import use_batch_mode
from d2lite.workers.diagnosis import Diagnosis, diagnose_hang, first_mismatch
from d2lite.workers.failures import WorkersError
from d2lite.workers.faults import FAULTS, diagnose, five_steps
from d2lite.workers.faulty_job import CAUSES, Job, simulated_records, train_job
from d2lite.workers.flight_recorder import Collective, FlightRecord, read_recorder
from d2lite.workers.pool import Workers
from d2lite.workers.tempdir import make_tempdir, remove_tempdir

__all__ = [
    "CAUSES",
    "Collective",
    "Diagnosis",
    "FAULTS",
    "FlightRecord",
    "Job",
    "Workers",
    "WorkersError",
    "diagnose",
    "diagnose_hang",
    "first_mismatch",
    "five_steps",
    "make_tempdir",
    "read_recorder",
    "remove_tempdir",
    "simulated_records",
    "train_job",
    "use_batch_mode",
]
