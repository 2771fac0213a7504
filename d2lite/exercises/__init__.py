"""Exercises that answer: `check` runs a learner's function on odd cases and says what is wrong.

The exercises themselves, their cases, solutions and hints, are the files `chapter_N.py` that `specifications` finds.
"""

from typing import TYPE_CHECKING, Any

from d2lite.exercises.check import check  # at once: the file has the function's name (see lazy_names)
from d2lite.exercises.specifications import load  # for `__getattr__` below
from notebook_ranks.shared.lazy_names import lazy_names

if TYPE_CHECKING:
    from d2lite.exercises.exercise import Exercise, Mistake
    from d2lite.exercises.handed_out import HandedOut
    from d2lite.exercises.judge import Score
    from d2lite.exercises.lockstep import NEVER_ENDS, WORLD_SIZE, Lockstep
    from d2lite.exercises.observed import Unfit, errors_named
    from d2lite.exercises.pretend_devices import COPIES, PretendDevices, PretendTensor, without_device
    from d2lite.exercises.specifications import all_exercises

__all__, _get, __dir__ = lazy_names(__name__)
_MUSEUM = ["EXHIBITS", "UNNAMED", "show_changes"]  # of the book's bug_museum.py
__all__ += _MUSEUM


def __getattr__(name: str) -> Any:
    return getattr(load("bug_museum"), name) if name in _MUSEUM else _get(name)
