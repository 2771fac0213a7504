"""The ledger: what is recorded is read again, and a lesson never stops because of it."""

import json
import os
import stat
import threading
import time

import pytest

from d2lite import learner_ledger
from d2lite.learner_ledger import FILE, change, ledger_file, read_ledger


def record(section, key, **entry):
    """Set these values in an entry, whatever it holds."""
    change(section, key, lambda before: entry)


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.delenv("D2LITE_LEDGER", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / FILE


EMPTY = {"predictions": {}, "exercises": {}}


def test_the_place(path, monkeypatch):
    assert ledger_file() == path
    monkeypatch.setenv("D2LITE_LEDGER", "~/mine.json")
    assert ledger_file() == type(path)(os.path.expanduser("~/mine.json"))
    monkeypatch.setenv("D2LITE_LEDGER", "OFF")
    assert ledger_file() is None and read_ledger() == EMPTY
    record("exercises", "1.1", solved=True)
    assert not path.exists()


def test_entries_are_changed_and_kept(path):
    assert read_ledger() == EMPTY
    record("exercises", "1.1", solved=False, right=3)
    record("exercises", "1.1", solved=True)
    record("predictions", "2.3", answers=["größer", 1.5, None, float("inf")])
    found = read_ledger()
    assert found["exercises"]["1.1"] == {"solved": True, "right": 3, "when": found["exercises"]["1.1"]["when"]}
    assert found["predictions"]["2.3"]["answers"] == ["größer", 1.5, None, float("inf")]
    time.strptime(found["predictions"]["2.3"]["when"], "%Y-%m-%dT%H:%M:%S")
    assert os.listdir(path.parent) == [FILE] and json.loads(path.read_text())["schema"] == "d2lite-ledger/1"


def test_what_it_does_not_know_stays(path):
    path.write_text(
        json.dumps({"schema": "d2lite-ledger/2", "notes": ["mine"], "exercises": {"1.1": "odd", "1.2": {}}})
    )
    assert read_ledger()["exercises"] == {"1.2": {}}
    record("exercises", "1.3", solved=True)
    kept = json.loads(path.read_text())
    assert kept["notes"] == ["mine"] and kept["exercises"]["1.1"] == "odd"
    record("exercises", "1.1", solved=True)
    assert read_ledger()["exercises"]["1.1"]["solved"] is True


def test_what_is_no_json_is_kept_as_its_text_and_odd_texts_come_back(path):
    record("exercises", "1.1", where=path, text="\udc80")
    assert read_ledger()["exercises"]["1.1"] | {"when": ""} == {"where": str(path), "text": "\udc80", "when": ""}


def test_another_section_is_refused(path):
    with pytest.raises(ValueError, match="section: expected one of predictions, exercises, got 'notes'"):
        record("notes", "1")


DAMAGED = ["", "{", "[]", '{"exercises": []}', "\udcff", "[" * 100_000, "1" * 5_000, " " * 5_000_001]


@pytest.mark.parametrize("text", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_file_is_refused_and_set_aside(path, text):
    path.write_text(text, errors="surrogateescape")
    with pytest.raises(ValueError, match=f"{FILE}: expected"):
        read_ledger()
    with pytest.warns(UserWarning, match="and a new ledger begins"):
        record("exercises", "1.1", solved=True)
    (aside,) = path.parent.glob("d2lite-ledger-damaged-*.json")
    assert aside.read_text(errors="surrogateescape") == text and read_ledger()["exercises"]["1.1"]["solved"]


def test_a_folder_or_a_pipe_is_neither_read_nor_moved(path, tmp_path):
    path.mkdir()
    with pytest.raises(OSError, match="expected a file"):
        read_ledger()
    with pytest.warns(UserWarning, match="The ledger was not written"):
        record("exercises", "1.1", solved=True)
    assert path.is_dir() and os.listdir(tmp_path) == [FILE]
    path.rmdir()
    if hasattr(os, "mkfifo"):
        os.mkfifo(path)
        with pytest.raises(OSError, match="expected a file"):  # and does not wait for a writer
            read_ledger()


def test_a_folder_that_is_not_there_is_a_warning(path, monkeypatch):
    monkeypatch.setenv("D2LITE_LEDGER", str(path.parent / "none" / FILE))
    with pytest.warns(UserWarning, match="The ledger was not written: .*none"):
        record("exercises", "1.1", solved=True)


def test_a_working_directory_that_is_gone_is_a_warning(path, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.warns(UserWarning, match="The ledger was not written"):
        record("exercises", "1.1", solved=True)


def test_a_link_stays_a_link_and_permissions_stay(path, tmp_path):
    (tmp_path / "kept").mkdir()
    target = tmp_path / "kept" / "real.json"
    target.write_text("{}")
    target.chmod(0o600)
    path.symlink_to(target)
    record("exercises", "1.1", solved=True)
    assert path.is_symlink() and "1.1" in target.read_text() and stat.S_IMODE(target.stat().st_mode) == 0o600


def test_notebooks_that_write_at_the_same_time_lose_nothing(path):
    def write(first):
        for i in range(10):
            record("exercises", f"{first}.{i}", solved=True)

    threads = [threading.Thread(target=write, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_ledger()["exercises"]) == 40


def test_nobody_else_gets_the_lock_while_an_entry_is_changed(path):
    fcntl = pytest.importorskip("fcntl")
    refused = []

    def changed(before):
        descriptor = os.open(path.parent, os.O_RDONLY)  # as another notebook does
        for kind in (fcntl.LOCK_EX, fcntl.LOCK_SH):
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                refused.append(kind)
        os.close(descriptor)
        return {"solved": True}

    change("exercises", "1.1", changed)
    assert refused == [fcntl.LOCK_EX, fcntl.LOCK_SH] and read_ledger()["exercises"]["1.1"]["solved"]


@pytest.fixture
def unlock(path, monkeypatch):
    """Lock the folder of the ledger, as a notebook does that was stopped while it wrote; unlock() ends that."""
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(learner_ledger, "LOCK_S", 0.05)
    descriptor = os.open(path.parent, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield lambda: fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def test_one_that_holds_the_lock_for_ever_does_not_stop_a_lesson_and_loses_nothing(path, unlock):
    path.write_text("{}")
    with pytest.warns(UserWarning, match=r"locked the folder for more than 0.05 s. Is one stopped\? End it"):
        record("exercises", "1.1", solved=True)
    assert path.read_text() == "{}"


def test_a_change_starts_from_what_is_in_the_file(path, unlock, monkeypatch):
    monkeypatch.setattr(learner_ledger, "LOCK_S", 10.0)
    seen = []

    def changed(before):
        seen.append(before)
        return {"tries": before["tries"] + 1}

    path.write_text(json.dumps({"exercises": {"1.1": {"tries": 1, "solved": True}}}))
    thread = threading.Thread(target=learner_ledger.change, args=("exercises", "1.1", changed))
    thread.start()
    time.sleep(0.1)  # it waits for the lock, whose holder writes now
    path.write_text(json.dumps({"exercises": {"1.1": {"tries": 7, "solved": True}}}))
    unlock()
    thread.join(10)
    assert seen == [{"tries": 7, "solved": True}]
    assert read_ledger()["exercises"]["1.1"]["tries"] == 8 and read_ledger()["exercises"]["1.1"]["solved"]
