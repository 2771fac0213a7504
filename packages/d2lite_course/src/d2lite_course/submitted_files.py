"""What learners have handed in: notebooks, folders of notebooks, archives. Nothing is unpacked, and no link followed.

An archive is read in memory, in bounds, and refused as a whole if a name in it leads out of it, if it has links, or if
it is larger unpacked than it may be.
"""

import hashlib
import os
import stat
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Submission", "read_submission", "submissions_in"]

MOST_BYTES = 10_000_000  # of a notebook
MOST_TOTAL = 40_000_000  # of all notebooks of a submission
MOST_FILES = 2_000  # of a folder or an archive
IGNORED = ("__MACOSX", ".ipynb_checkpoints")


@dataclass
class Submission:
    """One learner's submission: {path: text} of its notebooks, and in words what could not be read."""

    name: str
    notebooks: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    @property
    def digest(self) -> str:
        """The hash of everything that was handed in."""
        found = hashlib.sha256()
        for item in (*sorted(self.notebooks.items()), *self.wrong):
            found.update(repr(item).encode(errors="replace"))
        return found.hexdigest()

    def add(self, path: str, data: bytes) -> None:
        """Add a notebook, if there is room for it."""
        total = sum(map(len, self.notebooks.values()))
        if len(data) > MOST_BYTES or total + len(data) > MOST_TOTAL:
            self.wrong.append(f"{path} is left out: it is too large.")
        else:
            self.notebooks[path] = data.decode("utf-8", errors="replace")


def submissions_in(folder: str | Path) -> dict[str, Path]:
    """Return {name: path} of the submissions in a folder: each notebook, archive or folder in it is one.

    Raises:
        ValueError: If there is no such folder, or no submission in it.
    """
    place = Path(folder).expanduser()
    if not place.is_dir():
        raise ValueError(f"folder: expected a folder of submissions, got {folder}, which is none.")
    entries = [p for p in sorted(place.iterdir()) if not p.name.startswith(".") and p.name not in IGNORED]
    paths = [p for p in entries if p.is_dir() or p.suffix.lower() in (".ipynb", ".zip") or p.is_symlink()]
    if not paths:
        raise ValueError(f"folder: expected notebooks, .zip files or folders of them in {folder}, got none.")
    stems = [p.stem for p in paths]
    return {p.stem if stems.count(p.stem) == 1 else p.name: p for p in paths}


def read_submission(name: str, path: Path) -> Submission:
    """Return a submission; what is wrong with it is among its words, and never an error."""
    found = Submission(name)
    try:
        _read_into(found, path, path.name)
    except (OSError, ValueError) as error:
        found.wrong.append(f"{path.name} cannot be read: {error}")
    if not found.notebooks and not found.wrong:
        found.wrong.append("there is no notebook in it.")
    return found


def _read_into(found: Submission, path: Path, shown: str) -> None:
    if path.is_symlink():
        found.wrong.append(f"{shown} is left out: it is a link.")
    elif path.is_dir():
        _read_folder(found, path, shown)
    elif path.suffix.lower() == ".ipynb":
        if (data := _content_of(path)) is None:
            found.wrong.append(f"{shown} is left out: it is no ordinary file.")
        else:
            found.add(shown, data)
    elif path.suffix.lower() == ".zip":
        _read_archive(found, path, shown)


def _read_folder(found: Submission, folder: Path, shown: str) -> None:
    num_files = 0
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if f not in IGNORED and not f.startswith("."))
        for file in sorted(files):
            num_files += 1
            if num_files > MOST_FILES:
                found.wrong.append(f"{shown}: only the first {MOST_FILES} files were looked at.")
                return
            path = Path(place) / file
            if path.suffix.lower() in (".ipynb", ".zip"):
                _read_into(found, path, str(path.relative_to(folder)))


def _content_of(path: Path) -> bytes | None:
    """Return what is in an ordinary file, at most a byte more than a notebook may have; None for another kind."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        return file.read(MOST_BYTES + 1)


def _read_archive(found: Submission, path: Path, shown: str) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if why := _why_refused(entries):
                found.wrong.append(f"{shown} is refused: {why}.")
                return
            for entry in entries:
                parts = entry.filename.split("/")
                if entry.filename.lower().endswith(".ipynb") and not any(p in IGNORED or p[:1] == "." for p in parts):
                    with archive.open(entry) as file:
                        found.add(f"{shown}/{entry.filename}", file.read(MOST_BYTES + 1))  # what it says may be untrue
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
        found.wrong.append(f"{shown} is refused: it is no archive that can be read ({error}).")


def _why_refused(entries: list[zipfile.ZipInfo]) -> str:
    """Return why an archive is refused, or ""."""
    if len(entries) > MOST_FILES:
        return f"it has more than {MOST_FILES} files"
    for entry in entries:
        name = entry.filename.replace("\\", "/")
        if name.startswith("/") or ".." in name.split("/") or ":" in name.split("/")[0] or "\0" in name:
            return f"the name {entry.filename!r} leads out of it"
        if stat.S_ISLNK(entry.external_attr >> 16):
            return f"{entry.filename!r} is a link"
    if sum(entry.file_size for entry in entries) > MOST_TOTAL:
        return f"unpacked it has more than {MOST_TOTAL:,} bytes"
    return ""
