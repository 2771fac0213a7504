"""The laboratory of chapter 8, why faster, why slower: the predicted step, scaling, and measurements beside them."""

from typing import TYPE_CHECKING

from d2lite._install import missing
from notebook_ranks.shared.lazy_names import lazy_names

if TYPE_CHECKING:
    from .calibration import Calibration, calibrate, predicted_step
    from .ddp_buckets import DDP_BUCKETS
    from .scaling import (
        ScalingPrediction,
        Setup,
        crossover,
        crossover_batch_size,
        predict_scaling,
        strong_scaling,
        weak_scaling,
    )
    from .scaling_explorer import ScalingExplorer
    from .scaling_figure import efficiency_figure, predicted_and_measured, step_figure
    from .step import StepPrediction, predict_step
    from .stragglers import maximum_of_sample, normal_wait
    from .workloads import NETWORKS, Workload, named_workload, workload

__all__, __getattr__, __dir__ = lazy_names(__name__, missing)
