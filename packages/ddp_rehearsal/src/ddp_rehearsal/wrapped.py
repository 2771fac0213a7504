"""Functions of PyTorch and Python with something around them."""

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["wrap"]


def wrap(owner: Any, name: str, around: Callable[..., Any], *others: Any) -> None:
    """Replace a function of a module or class by around(function, *its arguments), in `others` as well.

    `others` are modules that have imported the function under the same name.
    """
    function = getattr(owner, name)

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return around(function, *args, **kwargs)

    for place in (owner, *others):
        setattr(place, name, wrapped)
