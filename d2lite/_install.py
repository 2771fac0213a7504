"""Advice on installing that fits what is here: a checkout with its Makefile, or a package installed by pip."""

import importlib.metadata
import re
from pathlib import Path

__all__ = ["how_to_install", "in_checkout", "missing"]

_ROOT = Path(__file__).resolve().parents[1]


def in_checkout() -> bool:
    """Return whether this package lies in a copy of the repository."""
    return (_ROOT / "Makefile").is_file() and (_ROOT / "requirements.txt").is_file()


def book_packages() -> list[str]:
    """Return what the extra `book` requires, in pip's words; [] if this package was not installed."""
    try:
        requires = importlib.metadata.requires("d2lite") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [line.split(";")[0].strip() for line in requires if re.search(r"extra\s*==\s*['\"]book['\"]", line)]


def how_to_install() -> str:
    """Return a sentence that tells the user how to install what the chapters need.

    For a wheel it lists the requirements: a public index could hold another package under this kit's name.
    """
    if in_checkout():
        return "run make lab, or pip install -r requirements.txt"
    packages = book_packages() or ["jupyterlab", "ipywidgets", "plotly", "anywidget", "torchvision"]
    return "run pip install " + " ".join(f'"{package}"' for package in packages)


def missing(name: str, wants: str) -> ImportError:
    """Return the ImportError for using `name`, which needs the package `wants`, which is not installed."""
    return ImportError(f"{name} needs {wants}, which is not installed: {how_to_install()}.", name=wants)
