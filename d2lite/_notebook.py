"""Where the code runs: in the kernel of a notebook, in a terminal's IPython, or in plain Python."""

import sys
from typing import Any

__all__ = ["ipython_shell", "notebook_shell"]


def ipython_shell() -> Any:
    """Return the IPython shell of this process, or None in plain Python. It never imports IPython."""
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


def notebook_shell() -> Any:
    """Return the IPython shell of this process if it is a notebook's kernel, or None."""
    shell = ipython_shell()
    return shell if hasattr(shell, "kernel") else None
