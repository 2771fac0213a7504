"""Real ranks for functions of notebook cells, which rank failed, and why a job hangs."""

from typing import TYPE_CHECKING

from notebook_ranks.shared.lazy_names import lazy_names

if TYPE_CHECKING:
    from notebook_ranks.batch_mode import use_batch_mode
    from notebook_ranks.events import Stopped, emit, listening
    from notebook_ranks.failures import WorkersError
    from notebook_ranks.flight_recorder import Collective, FlightRecord, read_recorder
    from notebook_ranks.hang_diagnosis import Diagnosis, diagnose_hang, first_mismatch
    from notebook_ranks.pool import Workers
    from notebook_ranks.tempdir import make_tempdir, remove_tempdir
    from notebook_ranks.torchrun import run_torchrun

__version__ = "0.2.0"
__all__, __getattr__, __dir__ = lazy_names(__name__)
