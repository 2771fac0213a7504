"""`python -m d2lite`: the report that a learner sends along when asking for help."""

import socket
import subprocess
import sys

import pytest

from d2lite import __main__ as page
from d2lite.data import find_files, location
from d2lite.learner_ledger import FILE


def verdicts(**arguments):
    return {name: (works, hint) for name, works, hint in page.features(**arguments)}


def test_the_report_names_devices_versions_data_and_every_feature():
    text = page.report(is_reachable=lambda: False)
    for word in ("CPU cores: ", "GPUs: ", "gives ", "memory ", "torch 2", "jupyterlab ", location()):
        assert word in text
    lines = text.split("What works here\n")[1].splitlines()
    assert len(lines) == len(page.features(is_reachable=lambda: False))
    for line in lines:
        assert line.startswith(("  yes  ", "  no   "))
        assert (" - " in line) == line.startswith("  no")  # a no says what to do


def test_a_missing_package_is_a_no_with_what_to_do(monkeypatch):
    monkeypatch.setattr(page, "version_of", lambda package: None if package == "anywidget" else "1.0")
    works, hint = verdicts(is_reachable=lambda: True)["live figures and the panel"]
    assert not works
    assert "make lab" in hint
    assert "anywidget is missing" in page.report(is_reachable=lambda: True)


def test_the_version_of_what_is_not_installed_is_none():
    assert page.version_of("torch")
    assert page.version_of("no-such-package-anywhere") is None


def test_the_data_is_a_yes_when_it_is_here_or_can_be_downloaded(monkeypatch):
    name = "all 60,000 images of Fashion-MNIST, here or by download"
    monkeypatch.setattr(page, "version_of", lambda package: "1.0")
    monkeypatch.setattr(page, "find_files", lambda: [])
    monkeypatch.delenv("D2LITE_DATA", raising=False)
    monkeypatch.delenv("D2LITE_OFFLINE", raising=False)
    assert not verdicts(is_reachable=lambda: False)[name][0]
    assert "D2LITE_DATA" in verdicts(is_reachable=lambda: False)[name][1]
    assert verdicts(is_reachable=lambda: True)[name][0]
    monkeypatch.setenv("D2LITE_OFFLINE", "1")
    assert not verdicts(is_reachable=lambda: True)[name][0]
    monkeypatch.delenv("D2LITE_OFFLINE")
    monkeypatch.setattr(page, "version_of", lambda package: None)  # pooch would download
    assert not verdicts(is_reachable=lambda: True)[name][0]
    monkeypatch.setattr(page, "find_files", lambda: ["file"])
    assert verdicts(is_reachable=lambda: False)[name][0]
    monkeypatch.setenv("D2LITE_DATA", "/no/such/folder")
    monkeypatch.setattr(page, "find_files", find_files)
    assert not verdicts(is_reachable=lambda: False)[name][0]


@pytest.mark.parametrize(("gpus", "several", "nccl"), [(0, False, False), (1, False, True), (2, True, True)])
def test_the_number_of_gpus_decides_several_gpus_and_nccl(monkeypatch, gpus, several, nccl):
    monkeypatch.setattr(page, "num_gpus", lambda: gpus)
    monkeypatch.setattr(page.dist, "is_nccl_available", lambda: True)
    found = verdicts(is_reachable=lambda: True)
    assert found["several GPUs"][0] == several
    assert found["DDP ranks, backend nccl"][0] == nccl


def test_reachable_is_whether_a_connection_opens():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        assert page.reachable(address, timeout_s=1)
    assert not page.reachable(address, timeout_s=1)


def test_the_argument_data_fetches_the_data_and_another_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(page, "fetch", lambda: print("fetched"))
    page.main(["data"])
    assert capsys.readouterr().out == "fetched\n"
    monkeypatch.undo()
    monkeypatch.setenv("D2LITE_DATA", "/no/such/folder")
    with pytest.raises(SystemExit, match="python -m d2lite data: D2LITE_DATA: expected"):
        page.main(["data"])
    for arguments, said in ((["dta"], "invalid choice: 'dta'"), (["progress", "one", "two"], "arguments: two")):
        with pytest.raises(SystemExit):
            page.main(arguments)
        assert said in capsys.readouterr().err


@pytest.mark.parametrize("command", [[], ["data"], ["progress"], ["book"]])
def test_help_is_printed_and_nothing_is_done(command, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        page.main([*command, "--help"])
    assert ended.value.code == 0 and not list(tmp_path.iterdir())
    assert capsys.readouterr().out.startswith(f"usage: python -m d2lite {' '.join(command)}".rstrip())


def test_progress_is_printed_and_a_damaged_ledger_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("D2LITE_LEDGER", raising=False)
    monkeypatch.chdir(tmp_path)
    page.main(["progress"])
    assert capsys.readouterr().out.startswith("No ledger: there is no ")
    (tmp_path / FILE).write_text('{"exercises": {"1.2": {"solved": true}}}')
    for arguments in (["progress"], ["progress", str(tmp_path)]):
        page.main(arguments)
        assert "chapter 1: 1 of 3 solved, 0 predictions made" in capsys.readouterr().out
    (tmp_path / FILE).write_text("{")
    for argument, said in ((".", f"{FILE}: expected JSON"), ("none", "got none, which does not exist")):
        with pytest.raises(SystemExit, match=f"python -m d2lite progress: .*{said}"):
            page.main(["progress", argument])


@pytest.mark.slow
def test_a_course_is_written_and_what_is_wrong_is_said_in_one_line(tmp_path, capsys):
    page.main(["course", str(tmp_path / "new"), "--chapters", "9"])
    said = capsys.readouterr().out
    assert f"Students get {tmp_path / 'new' / 'students'}" in said and "exercises.json" in said and "For " not in said
    for form in ("nbgrader", "otter"):
        page.main(["course", str(tmp_path / "new"), "--format", form])
        assert f"For {form}: {tmp_path / 'new' / form}." in capsys.readouterr().out
        assert list((tmp_path / "new" / form).rglob("chapter-09"))
    page.main(["course", str(tmp_path / "new")])  # what is there is renewed
    said = capsys.readouterr().out
    assert "For nbgrader: " in said and "For otter: " in said
    assert "Chapter 9 needs " in said and "which this course does not have." in said
    for arguments, wrong in (
        (["course", str(tmp_path / "other"), "--chapters", "four"], "expected numbers such as 2,4,5, got 'four'"),
        (["course", str(tmp_path / "other"), "--chapters", "99"], "expected chapters of the book, got 99"),
        (["course", str(tmp_path)], "expected numbers of chapters for a new course"),
        (["grade", str(tmp_path / "nobody"), "--course", str(tmp_path / "new")], "expected a folder of submissions"),
        (["grade", str(tmp_path), "--course", str(tmp_path / "nothing")], "expected the folder of a course"),
    ):
        with pytest.raises(SystemExit, match=wrong) as ended:
            page.main(arguments)
        assert str(ended.value).startswith(f"python -m d2lite {arguments[0]}: ")


def test_it_runs_as_a_module_and_loads_nothing_that_shows_things():
    code = (
        "import sys, d2lite.__main__ as page; page.main(); "
        "print([m for m in ('torchvision', 'plotly', 'ipywidgets', 'IPython') if m in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("d2lite ")
    assert ended.stdout.endswith("[]\n")
