"""The book's own files, beside the package in a checkout, inside it in a wheel: where they are, and a copy of them."""

import ast
import importlib
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from notebook_ranks.shared.notebook import notebook_shell

__all__ = ["PARTS", "book_module", "book_root", "copy_book", "find_in_book", "show_script"]

PARTS = (
    "book",
    "tools/cluster",
    "tools/slurm",
    "tools/jupyterlab",
    "benchmarks/__init__.py",
    "benchmarks/report.py",
    "benchmarks/results",
)
_PACKAGE = Path(__file__).resolve().parent
# JupyterLab's own colour of comments is too dark on its dark page
_COMMENTS = "<style>.jp-OutputArea-output { --jp-mirror-editor-comment-color: var(--jp-content-font-color1) }</style>"
_NOT_COPIED = shutil.ignore_patterns("__pycache__", ".*", "d2lite-ledger.json*", "runs")


def book_root() -> Path:
    """Return the absolute path of the folder that holds the parts of the book: `book`, `tools` and `benchmarks`.

    The working directory and its parents are searched first, so that a copy made by `python -m d2lite book FOLDER` uses
    its own scripts. Then come the checkout of an editable installation and the files inside an installed wheel. Raises
    FileNotFoundError if there is none of them.

    Example:
        >>> sorted(path.name for path in (book_root() / "book" / "scripts").glob("train*"))
        ['train.sbatch', 'train_ddp.py']
    """
    return _folder_with(PARTS)


def find_in_book(part: str) -> Path:
    """Return the path of a part such as "book/labs", in the first folder that has it; `book_root` needs all PARTS."""
    return _folder_with([part]) / part


def _folder_with(parts: Sequence[str]) -> Path:
    here = Path.cwd().resolve()
    for folder in (here, *here.parents, _PACKAGE.parent, _PACKAGE / "_book"):
        if all((folder / part).exists() for part in parts):
            return folder
    raise FileNotFoundError(
        f"the book: expected {', '.join(parts)} in {here}, above it, in {_PACKAGE.parent} or in {_PACKAGE / '_book'}, "
        "got none of them. Open the chapter in a copy of the repository, or install d2lite from its wheel."
    )


def book_module(name: str) -> ModuleType:
    """Import the module `name` of the book's own files, such as "tools.cluster.rings", and return it.

    The folder of `book_root` is put in front of `sys.path`, and stays there.

    Example:
        >>> book_module("tools.cluster.rings").LAYOUTS
        ((4, 1), (2, 2))
    """
    root = str(book_root())
    if root not in sys.path:
        sys.path.insert(0, root)
    return importlib.import_module(name)


def copy_book(folder: str | Path) -> Path:
    """Copy the book into `folder`, which must be new or empty, and return the path of the notebooks in it.

    Ledgers, saved runs and hidden files are not copied. Raises ValueError if `folder` has files in it or lies inside
    the book, OSError if it cannot be written.
    """
    goal, root = Path(folder).expanduser().resolve(), book_root()
    if goal.is_dir() and any(goal.iterdir()):
        raise ValueError(f"folder: expected a new or an empty one, got {folder}, which has files in it.")
    if any(goal.is_relative_to(root / part) for part in PARTS):
        raise ValueError(f"folder: expected one outside the book, got {folder}, which is inside of it.")
    goal.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        source, copy = root / part, goal / part
        if source.is_dir():
            shutil.copytree(source, copy, ignore=_NOT_COPIED)
        else:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)
    return goal / "book"


def show_script(name: str, *functions: str) -> Path:
    """Show `functions` of the script `name` of the book, in this order, and return the path of the script.

    Without `functions` all of it is shown. In a notebook the code is coloured; elsewhere it is printed. Raises
    FileNotFoundError if there is no such script, ValueError if it has no such function at its top level.
    """
    path = book_root() / "book" / "scripts" / name
    text = path.read_text(encoding="utf-8")
    lines, found = text.splitlines(), {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            found[node.name] = "\n".join(lines[first - 1 : node.end_lineno])
    if missing := [function for function in functions if function not in found]:
        raise ValueError(f"functions: expected some of {', '.join(found)}, got {', '.join(missing)}.")
    shown = "\n\n".join(found[function] for function in functions) if functions else text
    if notebook_shell() is None:
        print(shown)
    else:
        from IPython.display import HTML, Markdown, display

        display(HTML(_COMMENTS), Markdown(f"```python\n{shown}\n```"))
    return path
