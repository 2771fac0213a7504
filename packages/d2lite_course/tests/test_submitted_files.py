"""Submissions are read without unpacking anything and without following a link."""

import os
import stat
import zipfile

import pytest

from d2lite_course import submitted_files
from d2lite_course.submitted_files import read_submission, submissions_in


def archive(path, **files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, text in files.items():
            made.writestr(name, text)
    return path


def read(path):
    return read_submission("ann", path)


def test_notebooks_folders_and_archives_are_submissions(tmp_path):
    (tmp_path / "ann.ipynb").write_text("1")
    (tmp_path / "ben").mkdir()
    (tmp_path / "ben" / "b.ipynb").write_text("2")
    (tmp_path / "ben" / ".ipynb_checkpoints").mkdir()
    (tmp_path / "ben" / ".ipynb_checkpoints" / "old.ipynb").write_text("3")
    archive(tmp_path / "cem.zip", **{"a/c.ipynb": "4", "notes.txt": "5", "__MACOSX/c.ipynb": "6"})
    archive(tmp_path / "ben" / "more.zip", **{"d.ipynb": "7"})
    (tmp_path / "notes.txt").write_text("")
    found = submissions_in(tmp_path)
    assert list(found) == ["ann", "ben", "cem"]
    assert read(found["ann"]).notebooks == {"ann.ipynb": "1"}
    assert read(found["ben"]).notebooks == {"b.ipynb": "2", "more.zip/d.ipynb": "7"}
    assert read(found["cem"]).notebooks == {"cem.zip/a/c.ipynb": "4"}
    assert not read(found["cem"]).wrong


def test_two_of_one_name_are_told_apart(tmp_path):
    (tmp_path / "ann").mkdir()
    (tmp_path / "ann.ipynb").write_text("")
    assert list(submissions_in(tmp_path)) == ["ann", "ann.ipynb"]
    (tmp_path / "ann.ipynb.zip").mkdir()
    (tmp_path / "ann.ipynb.zip.zip").write_text("")
    (tmp_path / "ann.zip").write_text("")
    found = submissions_in(tmp_path)
    assert len(found) == 5 and {path.name for path in found.values()} == {path.name for path in tmp_path.iterdir()}


def test_a_folder_is_not_cut_at_a_dot(tmp_path):
    names = ["anna.meier", "Dr. Eva Klein_123_assignsubmission_file"]
    for name in names:
        (tmp_path / name).mkdir()
    assert sorted(submissions_in(tmp_path)) == sorted(names)


@pytest.mark.parametrize("name", ["cem.tar.gz", "dan.py", "fay.ipynb.txt", "gus.7z"])
def test_what_cannot_be_read_has_a_row_that_says_so(tmp_path, name):
    (tmp_path / name).write_text("")
    (tmp_path / "ann.ipynb").write_text("")
    (path,) = (path for path in submissions_in(tmp_path).values() if path.name == name)
    assert read(path).wrong == [f"{name} is not read: expected a notebook, a .zip or a folder of them."]


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_archive_costs_what_is_damaged(tmp_path, method):
    path = tmp_path / "ann.zip"
    with zipfile.ZipFile(path, "w", method) as made:
        made.writestr("a.ipynb", "good")
        made.writestr("b.ipynb", os.urandom(1000))
    data = bytearray(path.read_bytes())
    data[400:440] = b"\xff" * 40
    path.write_bytes(data)
    found = read(path)
    assert found.notebooks["ann.zip/a.ipynb"] == "good"
    assert list(found.notebooks) == ["ann.zip/a.ipynb"] and "ann.zip/b.ipynb cannot be read" in found.wrong[0]


@pytest.mark.parametrize("name", ["../up.ipynb", "a/../../up.ipynb", "/etc/up.ipynb", "C:/up.ipynb", "..\\up.ipynb"])
def test_an_archive_that_leads_out_is_refused(tmp_path, name):
    found = read(archive(tmp_path / "ann.zip", **{name: "1", "good.ipynb": "2"}))
    assert found.notebooks == {} and "leads out of it" in found.wrong[0]
    assert not list(tmp_path.rglob("up.ipynb"))


def test_an_archive_with_a_link_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "ann.zip", "w") as made:
        entry = zipfile.ZipInfo("a.ipynb")
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        made.writestr(entry, "/etc/passwd")
    assert "is a link" in read(tmp_path / "ann.zip").wrong[0]


def test_a_bomb_is_refused_or_cut(tmp_path, monkeypatch):
    bomb = archive(tmp_path / "ann.zip", **{f"{i}.ipynb": b"0" * 9_000_000 for i in range(5)})
    assert bomb.stat().st_size < 100_000
    assert "unpacked it has more than" in read(bomb).wrong[0]
    monkeypatch.setattr(submitted_files, "_why_refused", lambda entries: "")  # as if the sizes that it names were small
    found = read(bomb)
    assert len(found.notebooks) == 4 and "too large" in found.wrong[0]
    many = archive(tmp_path / "many.zip", **{f"{i}.ipynb": "" for i in range(submitted_files.MOST_FILES + 1)})
    monkeypatch.undo()
    assert "more than 2000 files" in read(many).wrong[0]


def test_a_folder_of_too_many_files_is_read_in_part(tmp_path, monkeypatch):
    monkeypatch.setattr(submitted_files, "MOST_FILES", 3)
    for i in range(3):
        (tmp_path / f"{i}.ipynb").write_text("")
    assert len(read(tmp_path).notebooks) == 3 and not read(tmp_path).wrong
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "3.ipynb").write_text("")
    found = read(tmp_path)
    assert len(found.notebooks) == 3 and "only the first 3 files were looked at" in found.wrong[0]


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 no archive", b"x" * 1000])
def test_what_is_no_archive_is_refused(tmp_path, data):
    (tmp_path / "ann.zip").write_bytes(data)
    assert "no archive that can be read" in read(tmp_path / "ann.zip").wrong[0]


@pytest.mark.skipif(os.name == "nt", reason="links and pipes of Linux and macOS")
def test_links_and_pipes_are_not_read(tmp_path):
    (tmp_path / "secret").write_text("of the teacher")
    (tmp_path / "ann").mkdir()
    (tmp_path / "ann" / "a.ipynb").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "ann" / "b.ipynb")
    os.mkfifo(tmp_path / "ann" / "c.zip")
    (tmp_path / "ben").symlink_to(tmp_path / "ann")
    found = read(tmp_path / "ann")
    assert found.notebooks == {} and sorted(found.wrong) == [
        "a.ipynb is left out: it is a link.",
        "b.ipynb is left out: it is no ordinary file.",
        "c.zip is left out: it is no ordinary file.",
    ]
    assert read(submissions_in(tmp_path)["ben"]).wrong == ["ben is left out: it is a link."]


def test_a_notebook_that_is_too_large_is_left_out(tmp_path):
    (tmp_path / "ann.ipynb").write_bytes(b"0" * (submitted_files.MOST_BYTES + 5))
    found = read(tmp_path / "ann.ipynb")
    assert found.notebooks == {} and "too large" in found.wrong[0]


def test_bytes_that_are_no_text_are_read(tmp_path):
    (tmp_path / "ann.ipynb").write_bytes(b"\xff\xfe\x00")
    assert list(read(tmp_path / "ann.ipynb").notebooks) == ["ann.ipynb"]
    assert len({read(tmp_path / "ann.ipynb").digest, read(tmp_path).digest}) == 1  # the same notebook


def test_no_submission_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="which is none"):
        submissions_in(tmp_path / "nothing")
    with pytest.raises(ValueError, match="expected notebooks"):
        submissions_in(tmp_path)
    (tmp_path / "ann").mkdir()
    assert read(tmp_path / "ann").wrong == ["there is no notebook in it."]
