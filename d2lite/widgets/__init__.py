"""What is clicked: panels, explorers, and curves that grow."""

from d2lite.widgets.animator import Animator
from d2lite.widgets.collective_stepper import CollectiveStepper, trace_collective
from d2lite.widgets.fault_lab import FaultLab
from d2lite.widgets.panel import Panel
from d2lite.widgets.partition_explorer import NETS, PartitionExplorer, sizes_of
from d2lite.widgets.scaling_explorer import ScalingExplorer

__all__ = [
    "Animator",
    "CollectiveStepper",
    "FaultLab",
    "NETS",
    "Panel",
    "PartitionExplorer",
    "ScalingExplorer",
    "sizes_of",
    "trace_collective",
]
