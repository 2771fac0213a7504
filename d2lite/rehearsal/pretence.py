"""The pretend GPUs that a rehearsal runs on where the machine has too few real ones."""

import sys
from pathlib import Path

__all__ = ["install_pretend_gpus"]


def install_pretend_gpus(num_gpus: int) -> None:
    """Give this process `num_gpus` pretend GPUs, to its end.

    Raises:
        ImportError: if they are not installed.
    """
    sys.path.append(str(Path(__file__).parents[2] / "tests" / "pretend"))
    from pretend_gpus import install  # type: ignore[import-not-found]

    install(num_gpus)
