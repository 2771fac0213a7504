"""Everything that is clicked: panels, explorers, predictions, and curves that grow.

Each module is loaded when it is first used, so that a question in plain Python needs no plotting package.
"""

import importlib
from typing import TYPE_CHECKING, Any

from d2lite._install import missing

if TYPE_CHECKING:
    from d2lite.widgets.animator import Animator
    from d2lite.widgets.collective_stepper import CollectiveStepper, trace_collective
    from d2lite.widgets.divergence_finder import DivergenceFinder
    from d2lite.widgets.fair_comparison import FairComparison
    from d2lite.widgets.fault_lab import FaultLab
    from d2lite.widgets.figure_explorer import FigureExplorer
    from d2lite.widgets.memory_explorer import MemoryExplorer
    from d2lite.widgets.mesh_game import MeshGame
    from d2lite.widgets.museum import Museum
    from d2lite.widgets.panel import Panel
    from d2lite.widgets.partition_explorer import NETS, PartitionExplorer, sizes_of
    from d2lite.widgets.pipeline_explorer import PipelineExplorer
    from d2lite.widgets.plotly_code import load_plotly
    from d2lite.widgets.predict import Predict
    from d2lite.widgets.scaling_explorer import ScalingExplorer
    from d2lite.widgets.schedule_puzzle import SchedulePuzzle
    from d2lite.widgets.whodunit import Whodunit

__all__ = [
    "Animator",
    "CollectiveStepper",
    "FairComparison",
    "DivergenceFinder",
    "FaultLab",
    "MemoryExplorer",
    "MeshGame",
    "Museum",
    "FigureExplorer",
    "NETS",
    "Panel",
    "PartitionExplorer",
    "PipelineExplorer",
    "Predict",
    "ScalingExplorer",
    "SchedulePuzzle",
    "Whodunit",
    "load_plotly",
    "sizes_of",
    "trace_collective",
]

_WHERE = {
    "Animator": "animator",
    "CollectiveStepper": "collective_stepper",
    "FairComparison": "fair_comparison",
    "DivergenceFinder": "divergence_finder",
    "FaultLab": "fault_lab",
    "FigureExplorer": "figure_explorer",
    "MemoryExplorer": "memory_explorer",
    "MeshGame": "mesh_game",
    "Museum": "museum",
    "NETS": "partition_explorer",
    "Panel": "panel",
    "PartitionExplorer": "partition_explorer",
    "PipelineExplorer": "pipeline_explorer",
    "Predict": "predict",
    "ScalingExplorer": "scaling_explorer",
    "SchedulePuzzle": "schedule_puzzle",
    "Whodunit": "whodunit",
    "load_plotly": "plotly_code",
    "sizes_of": "partition_explorer",
    "trace_collective": "collective_stepper",
}


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        try:
            return getattr(importlib.import_module(f"d2lite.widgets.{_WHERE[name]}"), name)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.split(".")[0] == "d2lite":
                raise
            raise missing(name, error.name) from error
    raise AttributeError(f"module 'd2lite.widgets' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
