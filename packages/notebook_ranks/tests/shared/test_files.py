"""Files that are written completely or not at all."""

import os
import stat

import pytest

from notebook_ranks.shared.files import replace_file


def test_a_file_is_made_and_replaced(tmp_path):
    path = tmp_path / "a.json"
    for text in ("one", "zwei, größer", ""):
        replace_file(path, text)
        assert path.read_text(encoding="utf-8") == text
    assert os.listdir(tmp_path) == ["a.json"]


def test_permissions_and_links_stay(tmp_path):
    path, link = tmp_path / "a.json", tmp_path / "link.json"
    path.write_text("one")
    path.chmod(0o640)
    link.symlink_to(path)
    replace_file(link, "two")
    assert link.is_symlink() and path.read_text() == "two" and stat.S_IMODE(path.stat().st_mode) == 0o640


def test_the_old_file_is_replaced_and_never_written_to(tmp_path):
    path, same = tmp_path / "a.json", tmp_path / "same.json"
    path.write_text("old")
    os.link(path, same)
    replace_file(path, "new")
    assert path.read_text() == "new" and same.read_text() == "old"


def test_a_link_to_nothing_makes_its_target(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    replace_file(tmp_path / "link", "text")
    assert (tmp_path / "target").read_text() == "text"


def test_a_lone_surrogate_is_escaped(tmp_path):
    replace_file(tmp_path / "a.json", '"\udc80"')
    assert (tmp_path / "a.json").read_text() == r'"\udc80"'


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    path.write_text("old")

    def full(descriptor):
        raise OSError(28, "No space left on device", "another name")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device: .*a.json"):
        replace_file(path, "new")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["a.json"]


def test_what_cannot_be_a_file_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="the folder does not exist: .*none"):
        replace_file(tmp_path / "none" / "a.json", "")
    with pytest.raises(OSError, match="which is no regular file"):
        replace_file(tmp_path, "")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(OSError, match="which is no regular file"):
            replace_file(tmp_path / "pipe", "")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anything")
def test_a_read_only_file_is_refused(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("old")
    path.chmod(0o400)
    with pytest.raises(PermissionError, match="read-only"):
        replace_file(path, "new")
