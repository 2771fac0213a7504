"""All that is measured: recorded steps, their critical path, and this machine's links and devices."""

from d2lite.profiling.calibration import Calibration, calibrate, measured_seconds, predicted_step, time_steps
from d2lite.profiling.critical_path import critical_path, cut_waits, idle_events, is_collective
from d2lite.profiling.divergence import Comparison, Divergence, compare_replicas, find_divergence
from d2lite.profiling.drift import History, replica_drift, step_history
from d2lite.profiling.fitting import SIZES, Fit, fit_device, fit_link, time_all_reduces
from d2lite.profiling.instrumented import record_buckets, record_ddp, record_train_batch
from d2lite.profiling.recorder import Recorder
from d2lite.profiling.step_recorder import StepRecord, Write, record_steps
from d2lite.profiling.step_times import PARTS, StepTimes, merged_step, step_parts, step_times
from d2lite.profiling.verdict import CONFIDENCE, Verdict, compare_arms, seeds_needed, student_quantile

__all__ = [
    "CONFIDENCE",
    "Calibration",
    "Comparison",
    "Divergence",
    "Fit",
    "History",
    "PARTS",
    "Recorder",
    "SIZES",
    "StepRecord",
    "StepTimes",
    "Verdict",
    "Write",
    "calibrate",
    "compare_arms",
    "compare_replicas",
    "critical_path",
    "cut_waits",
    "find_divergence",
    "fit_device",
    "fit_link",
    "idle_events",
    "is_collective",
    "measured_seconds",
    "merged_step",
    "predicted_step",
    "record_buckets",
    "record_ddp",
    "record_steps",
    "record_train_batch",
    "replica_drift",
    "seeds_needed",
    "step_history",
    "step_parts",
    "step_times",
    "student_quantile",
    "time_all_reduces",
    "time_steps",
]
