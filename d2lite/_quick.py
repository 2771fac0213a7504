"""How large an experiment is: as a learner runs it, or smaller where a test asks for it."""

import os
from typing import TypeVar

__all__ = ["quick"]

T = TypeVar("T")


def quick(full: T, small: T) -> T:
    """Return `full`, or `small` where D2LITE_QUICK=1 asks for a short run (the tests set it)."""
    return small if os.environ.get("D2LITE_QUICK") == "1" else full
