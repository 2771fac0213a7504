"""The laboratory of chapter 9, learning rate and batch size: fair comparisons of training runs."""

from typing import TYPE_CHECKING

from d2lite._install import missing
from notebook_ranks.shared.lazy_names import lazy_names

from .noise_scale import noise_scale

if TYPE_CHECKING:
    from .comparison import OPTIMIZERS, Arm, Trial, differences, run_arms, train_arm, train_until_spent
    from .comparison_figure import bands_figure, heat_map_figure, intervals_figure
    from .fair_comparison import FairComparison
    from .learning_rate import LR_RULES, scaled_lr, warm_up
    from .noise_scale import GradientNorms, NoiseScale, gradient_norms
    from .significance import CONFIDENCE, ArmComparison, compare_arms, seeds_needed, student_quantile
    from .warm_start import KEPT, start_net

__all__, __getattr__, __dir__ = lazy_names(__name__, missing)
