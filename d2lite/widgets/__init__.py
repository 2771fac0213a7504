"""Everything that is clicked: panels, explorers, predictions, and curves that grow.

Each module is loaded when it is first used, so that a question in plain Python needs no plotting package.
"""

from typing import TYPE_CHECKING

from d2lite._install import missing
from notebook_ranks.shared.lazy_names import lazy_names

if TYPE_CHECKING:
    from d2lite.widgets.animator import Animator
    from d2lite.widgets.panel import Panel
    from d2lite.widgets.plotly_code import load_plotly
    from d2lite.widgets.predict import Predict

__all__, __getattr__, __dir__ = lazy_names(__name__, missing)
