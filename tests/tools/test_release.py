"""The table of a release, and the steps that it is made of."""

import re
from pathlib import Path

import pytest

from tools import release

ROOT = Path(__file__).parents[2]


def test_each_step_is_a_target_of_the_makefile_or_a_program_of_this_repository():
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))
    for command in release.STEPS.values():
        assert command.startswith(".venv/bin/python -m tools.") or command.split()[1] in targets, command


def test_a_failed_step_is_in_the_table_and_in_the_exit_code_and_the_others_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(release, "LOGS", tmp_path / "logs")
    steps = {"well": "echo one; echo two", "badly": "echo 'a | b'; exit 3", "after": "true"}
    monkeypatch.setattr(release, "STEPS", steps)
    assert release.main(["--only", *steps]) == 1
    printed = capsys.readouterr().out
    assert "| well | `echo one; echo two` | 0 | 0:00 | two |" in printed
    assert "| badly | `echo 'a | b'; exit 3` | 3 | 0:00 | a / b |" in printed
    assert "| after | `true` | 0 | 0:00 |  |" in printed
    assert (tmp_path / "logs" / "well.txt").read_text() == "one\ntwo\n"
    assert release.main(["--only", "well", "after"]) == 0


def test_a_step_that_does_not_end_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(release, "LOGS", tmp_path)
    monkeypatch.setattr(release, "LIMIT_S", 0.1)
    assert release.taken("sleeps", "sleep 60")[1] != 0


def test_a_step_whose_tests_were_all_skipped_has_failed(tmp_path, monkeypatch):
    monkeypatch.setattr(release, "LOGS", tmp_path)
    assert release.taken("hub", "echo '2 skipped in 0.05s'")[1] == 1
    assert release.taken("hub", "echo '3 passed, 2 skipped in 0.05s'")[1] == 0


@pytest.mark.parametrize("seconds", [59.6, 61])
def test_times_are_minutes_and_seconds(seconds):
    assert f"| {int(seconds) // 60}:{int(seconds) % 60:02} |" in release.table([("a", "b", 0, seconds, "c")])
