"""The laboratory of chapter 16, rank 0 of 512: the step of a mesh, predicted."""

from typing import TYPE_CHECKING

from d2lite._install import missing
from notebook_ranks.shared.lazy_names import lazy_names

from .mesh_step_figure import mesh_step_figure

if TYPE_CHECKING:
    from .compared_step import compare_with_mesh_step
    from .fitted_rate import fitted_device
    from .fsdp_step import FsdpStep, predict_fsdp_step, tokens_that_hide
    from .mesh_game import MeshGame
    from .mesh_search import fastest_mesh, possible_meshes, why_slower
    from .mesh_step import Mesh, MeshStep, predict_mesh_step
    from .prediction_card import (
        CardVerdict,
        Measured,
        PredictionCard,
        card_from_json,
        card_of_step,
        compare_with_measured,
        measured_from_json,
    )
    from .printed_calls import print_calls
    from .published_changes import LLAMA_3_TFLOPS, PUBLISHED_CHANGES, PublishedChange

__all__, __getattr__, __dir__ = lazy_names(__name__, missing)
