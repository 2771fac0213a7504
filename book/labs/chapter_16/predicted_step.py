"""What every predicted step has: its seconds, the rate of a GPU, and what a rank holds."""

from dataclasses import dataclass

from notebook_ranks.shared.checks import non_negative_number

from ..chapter_13.memory import MemoryPrediction

__all__ = ["PredictedStep"]


@dataclass(frozen=True, kw_only=True)
class PredictedStep:
    """One predicted step of training; a subclass says what its `seconds` are made of."""

    memory: MemoryPrediction
    model_flops_per_gpu: float  # without what checkpointing computes a second time

    @property
    def seconds(self) -> float:
        """The time of the step."""
        raise NotImplementedError

    @property
    def tflops_per_gpu(self) -> float:
        """Model operations per second and GPU, in 10^12: 6 per parameter and token, whatever else is computed."""
        return self.model_flops_per_gpu / self.seconds / 1e12

    def fits(self, n_bytes: float) -> bool:
        """Return whether a rank with `n_bytes` of memory can hold it.

        Raises ValueError or TypeError for what is no finite number from 0 on.
        """
        return self.memory.total_n_bytes <= non_negative_number("n_bytes", n_bytes)
