"""Where the code runs: in a notebook's kernel, or in a terminal."""

import sys
from typing import Any

__all__ = ["kernel"]


def kernel() -> Any:
    """Return the IPython shell of this notebook's kernel, or None in a terminal."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return shell if hasattr(shell, "kernel") else None
