"""Whether ranks can start here: on Linux and macOS they can, on Windows they cannot.

A rank gets its pipe as a file descriptor of the process that starts it, and is ended by signals of Unix.
"""

import os

__all__ = ["why_no_ranks"]


def why_no_ranks() -> str:
    """Return why `Workers` cannot start ranks on this system and what to do, or "" where it can.

    Example:
        >>> why_no_ranks()  # on Linux and macOS
        ''
    """
    return (
        "Workers needs Linux or macOS: on Windows use WSL 2, or a notebook server elsewhere." if os.name == "nt" else ""
    )
