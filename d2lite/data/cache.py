"""Tensors kept in files of the user's cache folder; all processes that read a file share its memory."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch

__all__ = ["cache_folder", "load_or_make"]

T = TypeVar("T")


def cache_folder() -> Path:
    """Return the folder for downloaded and drawn data: $XDG_CACHE_HOME/d2lite or ~/.cache/d2lite."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "d2lite"


def load_or_make(name: str, about: str, make: Callable[[], T]) -> T:
    """Return the tensors of make(), loaded from the file `name` in the cache; processes that map it share its memory.

    The file is made again where it is missing or damaged, or where it was made for another `about`.
    """
    path = cache_folder() / name
    if kept := _mapped(path, about):
        return kept
    made = make()
    part = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save({"about": about, "tensors": made}, part)
        if not _mapped(path, about):  # else another rank was faster: one file for all
            os.replace(part, path)
    except (OSError, RuntimeError):  # a full disk or a read-only home: it costs a second each time
        return made
    finally:
        with contextlib.suppress(OSError):  # renamed, or never made
            part.unlink()
    return _mapped(path, about) or made


def _mapped(path: Path, about: str) -> Any:
    """Return the tensors of a file in the cache, or None if it is missing, cut short, or made for another `about`."""
    with contextlib.suppress(Exception):  # a damaged file can raise nearly anything
        kept = torch.load(path, weights_only=True, mmap=True)
        return kept["tensors"] if kept["about"] == about else None
