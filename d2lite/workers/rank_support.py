"""Whether ranks can start here: on Linux and macOS they can, on Windows they cannot.

A rank gets its pipe as a file descriptor of the process that starts it, and is ended by signals of Unix.
"""

import os
import warnings

__all__ = ["warn_without_ranks", "why_no_ranks"]

INSTEAD = "on Windows use WSL 2, or open the chapter on Colab or Binder."


def why_no_ranks() -> str:
    """Return why `Workers` cannot start ranks on this system and what to do, or "" where it can.

    Example:
        >>> why_no_ranks()  # on Linux and macOS
        ''
    """
    return f"Workers needs Linux or macOS: {INSTEAD}" if os.name == "nt" else ""


def warn_without_ranks() -> None:
    """Warn that the cells with ranks will fail, on a system that has none; the first cell of a chapter calls this.

    Example:
        >>> warn_without_ranks()  # says nothing on Linux and macOS
    """
    if why := why_no_ranks():
        warnings.warn(
            f"This chapter starts processes, and the cells with `Workers`, `torchrun` or hosts will fail here. {why} "
            "The other cells run.",
            stacklevel=2,
        )
