"""Folders that are removed with their owner, however it ends."""

import os
import subprocess
import sys
import tempfile

import pytest

from notebook_ranks import tempdir

pytestmark = pytest.mark.skipif(os.name == "nt", reason="file locks of Linux and macOS")


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_a_folder_in_use_is_kept_and_a_removed_one_leaves_nothing_open(tmp_path):
    before = len(os.listdir("/dev/fd"))
    path, descriptor = tempdir.make_tempdir()
    (path / "rank-0.txt").write_text("output")
    tempdir.sweep_tempdirs()
    assert (path / "rank-0.txt").exists() and path.parent == tmp_path
    tempdir.remove_tempdir(path, descriptor)
    assert not list(tmp_path.iterdir()) and len(os.listdir("/dev/fd")) == before


def test_the_folder_of_an_owner_that_was_killed_is_swept_by_the_next_start(tmp_path):
    code = "import os, signal; from notebook_ranks.tempdir import make_tempdir; make_tempdir(); "
    code += "os.kill(os.getpid(), signal.SIGKILL)"
    subprocess.run([sys.executable, "-c", code], env=os.environ | {"TMPDIR": str(tmp_path)})
    (orphan,) = tmp_path.iterdir()
    mine = tempdir.make_tempdir()
    assert not orphan.exists() and mine[0].exists()
    tempdir.remove_tempdir(*mine)


def test_folders_that_are_not_ours_are_left_alone(tmp_path):
    half_made, other = tmp_path / f"{tempdir.PREFIX}half", tmp_path / "other"
    half_made.mkdir(), other.mkdir()  # the first: another pool is about to lock it
    tempdir.sweep_tempdirs()
    assert half_made.exists() and other.exists()
    os.utime(half_made, (1, 1))  # nobody is about to lock it any more
    os.utime(other, (1, 1))
    tempdir.sweep_tempdirs()
    assert not half_made.exists() and other.exists()
