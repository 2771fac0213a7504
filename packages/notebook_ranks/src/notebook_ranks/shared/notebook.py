"""Where the code runs: a notebook's kernel, a terminal's IPython, or plain Python; and a rule for a notebook's page."""

import sys
from typing import Any

__all__ = ["WRAP_RULE", "ipython_shell", "notebook_shell"]

# What is printed wraps between words: JupyterLab breaks a line inside words and numbers. A style sheet anywhere on the
# page holds for all of it, also for other notebooks that are open in JupyterLab.
WRAP_RULE = ".jp-OutputArea .jp-OutputArea-output pre { word-break: normal; overflow-wrap: anywhere; }"


def ipython_shell() -> Any:
    """Return the IPython shell of this process, or None in plain Python. It never imports IPython."""
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


def notebook_shell() -> Any:
    """Return the IPython shell of this process if it is a notebook's kernel, or None."""
    shell = ipython_shell()
    return shell if hasattr(shell, "kernel") else None
