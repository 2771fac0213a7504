"""How much of everything: as a learner runs it, or less where a test asks for it."""

import os

__all__ = ["quick"]


def quick(full, small):
    """Return `full`, or `small` where D2LITE_QUICK=1 asks for a short run (the tests do)."""
    return small if os.environ.get("D2LITE_QUICK") == "1" else full
