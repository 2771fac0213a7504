"""The record of what a rehearsal adds to a step: both runs are measured, and the figures are kept."""

import json
import os

import pytest

from benchmarks import report
from benchmarks.records import rehearsal_overhead as record

pytestmark = pytest.mark.skipif(os.name == "nt", reason="ranks need Linux or macOS")


@pytest.mark.release
def test_both_runs_are_measured_and_kept(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    name = next(iter(record.NETWORKS))
    monkeypatch.setattr(record, "NETWORKS", {name: record.NETWORKS[name]})
    monkeypatch.setattr(record, "NUM_STEPS", 12)
    monkeypatch.setattr(record, "WARM_UP", 4)
    record.main(["--rounds", "1", "--save", "kept"])
    printed = capsys.readouterr().out
    kept = json.loads((tmp_path / "kept.json").read_text())
    assert kept["command"] == "python -m benchmarks.records.rehearsal_overhead --rounds 1 --save kept"
    for clock, rows in kept["milliseconds"][name].items():
        (plain,), (watched,), (more,) = rows["plain"], rows["watched"], rows["more_percent"]
        assert plain > 0 and watched > 0 and more == pytest.approx(100 * (watched / plain - 1))
        assert f"{name}, {clock}: {plain:.2f} ms, watched {watched:.2f} ms" in printed
