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
from typing import IO

__all__ = ["Submission", "read_submission", "submissions_in"]

MOST_BYTES = 10_000_000  # of a notebook
MOST_TOTAL = 40_000_000  # of all notebooks of a submission
MOST_FILES = 2_000  # of a folder or an archive
MOST_PACKED = 100_000_000  # of an archive; its list of contents is in memory
NOT_READ = (".7z", ".bz2", ".gz", ".html", ".ipynb.txt", ".ipynb~", ".py", ".rar", ".tar", ".tgz", ".xz", ".zst")
READ = (".ipynb", ".zip")
_NO_LINK_NO_WAIT = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
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

    A file of another kind that a learner may have handed in is one as well: it is not read, and its row says so.

    Raises:
        ValueError: If there is no such folder, or no submission in it.
    """
    place = Path(folder).expanduser()
    if not place.is_dir():
        raise ValueError(f"folder: expected a folder of submissions, got {folder}, which is none.")
    entries = [p for p in sorted(place.iterdir()) if not p.name.startswith(".") and p.name not in IGNORED]
    paths = [p for p in entries if p.is_dir() or p.is_symlink() or p.name.lower().endswith((*READ, *NOT_READ))]
    if not any(p.is_dir() or p.is_symlink() or p.name.lower().endswith(READ) for p in paths):
        raise ValueError(f"folder: expected notebooks, .zip files or folders of them in {folder}, got none.")
    names = {p: p.name if p.is_dir() and not p.is_symlink() else p.stem for p in paths}
    taken = [*names.values(), *(p.name for p in paths if names[p] != p.name)]
    return {name if taken.count(name) == 1 else p.name: p for p, name in names.items()}


def read_submission(name: str, path: Path) -> Submission:
    """Return a submission; what is wrong with it is among its words, and never an error."""
    found = Submission(name)
    try:
        _read_into(found, path, path.name)
    except Exception as error:
        found.wrong.append(f"{path.name} cannot be read: {type(error).__name__}: {str(error)[:200]}.")
    if not found.notebooks and not found.wrong:
        found.wrong.append("there is no notebook in it.")
    return found


def _read_into(found: Submission, path: Path, shown: str) -> None:
    if path.is_symlink():
        found.wrong.append(f"{shown} is left out: it is a link.")
    elif path.is_dir():
        _read_folder(found, path, shown)
    elif path.suffix.lower() not in READ:
        found.wrong.append(f"{shown} is not read: expected a notebook, a .zip or a folder of them.")
    else:
        with _opened(path) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                found.wrong.append(f"{shown} is left out: it is no ordinary file.")
            elif path.suffix.lower() == ".ipynb":
                found.add(shown, file.read(MOST_BYTES + 1))
            else:
                _read_archive(found, file, shown)


def _opened(path: Path) -> IO[bytes]:
    """Open a file of any kind without following a link, and without waiting for the other end of a pipe."""
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | _NO_LINK_NO_WAIT))


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
            if path.suffix.lower() in READ:
                _read_into(found, path, str(path.relative_to(folder)))


def _read_archive(found: Submission, data: IO[bytes], shown: str) -> None:
    if os.fstat(data.fileno()).st_size > MOST_PACKED:
        found.wrong.append(f"{shown} is refused: it has more than {MOST_PACKED:,} bytes.")
        return
    try:
        with zipfile.ZipFile(data) as archive:
            entries = archive.infolist()
            if why := _why_refused(entries):
                found.wrong.append(f"{shown} is refused: {why}.")
                return
            for entry in entries:
                parts = entry.filename.split("/")
                if entry.filename.lower().endswith(".ipynb") and not any(p in IGNORED or p[:1] == "." for p in parts):
                    _read_entry(found, archive, entry, f"{shown}/{entry.filename}")
    except Exception as error:
        found.wrong.append(f"{shown} is refused: it is no archive that can be read ({str(error)[:200]}).")


def _read_entry(found: Submission, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, shown: str) -> None:
    try:
        with archive.open(entry) as file:
            found.add(shown, file.read(MOST_BYTES + 1))  # the size that the archive names may be untrue
    except Exception as error:  # each way of packing has errors of its own
        found.wrong.append(f"{shown} cannot be read: {type(error).__name__}: {str(error)[:200]}.")


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
