"""The bug finder: which bug a training step has, whether replicas are copies, and the divergence of two runs.

The bugs of the museum themselves are in `bug_museum.py`, beside the specifications of exercises; `d2lite.exercises`
loads them.
"""

from d2lite.bugs.bug_exhibit import DRIFT, LATER, LONG, NOTHING, SHORT, SIGNS, SIZES, BugExhibit
from d2lite.bugs.check_replicas import check_replicas
from d2lite.bugs.check_step import check_step
from d2lite.bugs.divergence import Comparison, Divergence, compare_replicas, find_divergence
from d2lite.bugs.replica_drift import History, replica_drift, step_history
from d2lite.bugs.verdict import Verdict
from d2lite.bugs.write_recorder import StepRecord, Write, record_steps

__all__ = [
    "BugExhibit",
    "DRIFT",
    "LATER",
    "LONG",
    "NOTHING",
    "SHORT",
    "SIGNS",
    "SIZES",
    "Comparison",
    "Divergence",
    "History",
    "StepRecord",
    "Verdict",
    "Write",
    "check_replicas",
    "check_step",
    "compare_replicas",
    "find_divergence",
    "record_steps",
    "replica_drift",
    "step_history",
]
