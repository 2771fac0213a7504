"""All that is measured: recorded steps, their critical path, and the calibration of links and devices."""

from d2lite.profiling.calibration import Calibration, calibrate, predicted_step
from d2lite.profiling.collective_calls import CollectiveCall, recorded_collectives
from d2lite.profiling.critical_path import critical_path, cut_waits, idle_events, is_collective
from d2lite.profiling.fitting import Fit, fit_device, fit_link
from d2lite.profiling.instrumented import record_buckets, record_ddp, record_stages, record_train_batch
from d2lite.profiling.memory_held import ActivationsHeld, activations_held, bytes_held
from d2lite.profiling.other_programs import OtherPrograms
from d2lite.profiling.recorder import Recorder
from d2lite.profiling.significance import CONFIDENCE, ArmComparison, compare_arms, seeds_needed, student_quantile
from d2lite.profiling.step_times import PARTS, StepTimes, merged_step, step_parts, step_times
from d2lite.profiling.timed_on_ranks import SIZES, measured_seconds, time_all_reduces, time_steps
from d2lite.profiling.watched_training import ImageGuesses, RecordedStep, train_watched, watched_step

__all__ = [
    "ActivationsHeld",
    "ArmComparison",
    "CONFIDENCE",
    "Calibration",
    "CollectiveCall",
    "Fit",
    "OtherPrograms",
    "PARTS",
    "RecordedStep",
    "Recorder",
    "SIZES",
    "StepTimes",
    "ImageGuesses",
    "activations_held",
    "bytes_held",
    "calibrate",
    "compare_arms",
    "critical_path",
    "cut_waits",
    "fit_device",
    "fit_link",
    "idle_events",
    "is_collective",
    "measured_seconds",
    "merged_step",
    "predicted_step",
    "record_buckets",
    "record_ddp",
    "record_stages",
    "record_train_batch",
    "recorded_collectives",
    "seeds_needed",
    "step_parts",
    "step_times",
    "student_quantile",
    "time_all_reduces",
    "time_steps",
    "train_watched",
    "watched_step",
]
