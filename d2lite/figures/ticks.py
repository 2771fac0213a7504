"""The places of the ticks of an axis."""

import math

__all__ = ["tick_step", "ticks"]


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return round numbers from `low` to `high`, at most `most` of them: steps of 1, 2 or 5 times a power of ten."""
    if not high > low:
        return [low]
    step = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(step * m for m in (1, 2, 5, 10, 20) if (high - low) / (step * m) <= most - 1)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def tick_step(low: float, high: float) -> float:
    """Return the step between the ticks of an axis from `low` to `high`: whole, where the axis is one or longer.

    Epochs are whole, so no tick is at 1.5. Every figure has a step: a page keeps the step of an earlier figure, and
    hundreds of ticks would take it a minute (tried with plotly 7.1).
    """
    found = ticks(low, high, most=9)
    step = round(found[1] - found[0], 12) if len(found) > 1 else 1.0
    return max(1.0, step) if high - low >= 1 else step
