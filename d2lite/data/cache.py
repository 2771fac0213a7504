"""Tensors kept in a folder of the user, one file for all processes that read them."""

import contextlib
import os
from pathlib import Path

import torch

__all__ = ["cache_folder", "load_or_make"]


def cache_folder():
    """Return the folder for downloaded and drawn data: $XDG_CACHE_HOME/d2lite or ~/.cache/d2lite."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "d2lite"


def load_or_make(name, about, make):
    """Return make()'s tensors from a file in the cache; all processes that map it share its memory.

    The file is made anew where it is missing, damaged, or was made of something else than `about` says.
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


def _mapped(path, about):
    """Return the tensors of a file in the cache, or None if it is missing, cut short, or about something else."""
    with contextlib.suppress(Exception):  # a damaged file can raise nearly anything
        kept = torch.load(path, weights_only=True, mmap=True)
        return kept["tensors"] if kept["about"] == about else None
