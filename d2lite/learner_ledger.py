"""The ledger: what a learner has predicted and solved, kept as one JSON file next to the saved runs.

The file is `d2lite-ledger.json` in the working directory, or the one that the variable D2LITE_LEDGER names;
D2LITE_LEDGER=off keeps nothing. It is an ordinary text file: a learner may read it, hand it in, or remove it.
"""

import errno
import json
import os
import stat
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from notebook_ranks.shared.files import replace_file
from notebook_ranks.shared.format import text_of

__all__ = ["FILE", "change", "ledger_file", "read_ledger"]

FILE = "d2lite-ledger.json"
SECTIONS = ("predictions", "exercises")
MOST_BYTES = 5_000_000  # a ledger of ours has some kilobytes
LOCK_S = 5.0  # bounds the wait for another notebook that writes; it takes milliseconds


def ledger_file() -> Path | None:
    """Return the path of the ledger, which need not exist yet, or None if nothing is to be kept."""
    named = os.environ.get("D2LITE_LEDGER", "")
    if named.lower() == "off":
        return None
    return Path(os.path.expanduser(named)) if named else Path.cwd() / FILE


def read_ledger(path: Path | None = None) -> dict[str, dict[str, Any]]:
    """Return {"predictions": {key: entry}, "exercises": {name: entry}}, empty without a ledger.

    Raises ValueError if the file is no ledger.
    """
    path = path or ledger_file()
    kept = _loaded(path) if path is not None else {}
    return {
        section: {key: entry for key, entry in kept.get(section, {}).items() if isinstance(entry, dict)}
        for section in SECTIONS
    }


def change(section: str, key: str, changed: Callable[[dict[str, Any]], Mapping[str, Any]]) -> dict[str, Any] | None:
    """Set changed(entry), and the time, in the entry `key` of a `section`; return the entry that was written, or None.

    `section` is "predictions" or "exercises". `changed` gets the entry as it is in the file, {} without one, while no
    other notebook writes: so it can add to what another notebook has just written. It returns texts, numbers, lists or
    None by name; what else the entry has stays. A lesson never stops because of its ledger: a file that cannot be
    written is a warning, and a damaged one is set aside under another name, with a warning.
    """
    if section not in SECTIONS:
        raise ValueError(f"section: expected one of {', '.join(SECTIONS)}, got {section!r}.")
    try:
        path = ledger_file()
        if path is None:
            return None
        with _alone(path.parent):
            kept = _loaded_or_set_aside(path)
            entries = kept.setdefault(section, {})
            before = entries.get(key)
            before = before if isinstance(before, dict) else {}
            entries[key] = {**before, **changed(before), "when": time.strftime("%Y-%m-%dT%H:%M:%S")}
            text = json.dumps({**kept, "schema": "d2lite-ledger/1"}, indent=1, ensure_ascii=False, default=text_of)
            replace_file(path, text + "\n")
            return dict(entries[key])
    except OSError as error:
        with suppress(Exception):
            warnings.warn(f"The ledger was not written: {error}", stacklevel=3)
        return None


def _loaded(path: Path) -> dict[str, Any]:
    """Return all that a ledger holds, {} if there is none; raise ValueError if the file is no ledger, or OSError."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return {}
    if not stat.S_ISREG(found.st_mode):  # to read a pipe would wait for a writer; a folder is not to be set aside
        raise OSError(errno.EINVAL, "expected a file, the ledger, got a folder or a device", str(path))
    if found.st_size > MOST_BYTES:
        raise ValueError(f"{path}: expected a ledger of some kilobytes, got {found.st_size:,} bytes.")
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, a number of too many digits, too deep
        raise ValueError(f"{path}: expected JSON, got {type(error).__name__}: {error}") from error
    if not isinstance(kept, dict) or any(not isinstance(kept.get(section, {}), dict) for section in SECTIONS):
        raise ValueError(f"{path}: expected a ledger, got other JSON.")
    return kept


def _loaded_or_set_aside(path: Path) -> dict[str, Any]:
    try:
        return _loaded(path)
    except ValueError as error:
        aside = path.with_name(f"{path.stem}-damaged-{time.strftime('%Y%m%d-%H%M%S')}{path.suffix}")
        path.rename(aside)
        warnings.warn(f"{error} It is now {aside.name}, and a new ledger begins.", stacklevel=4)
        return {}


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other notebooks from writing a ledger of `folder` inside the block, where the system has such locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        deadline = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:  # to write now could lose what the other one is about to write
                    raise TimeoutError(
                        f"expected to be the only notebook that writes in {folder}, got a different process that has "
                        f"locked the folder for more than {LOCK_S:g} s. Is one stopped? End it, and run the cell again."
                    ) from None
                time.sleep(0.01)
            except OSError:  # no locks on this file system
                break
        yield
    finally:
        os.close(descriptor)
