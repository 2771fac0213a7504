"""The benchmark of the divergence finder keeps what it measured."""

import json

from benchmarks import report
from benchmarks.records import divergence


def test_the_record_has_each_round_and_the_memory(monkeypatch, tmp_path, capsys):
    sizes = {"num_steps": 2, "batch_size": 8}
    for name in ("step_seconds", "kept_bytes"):
        original = getattr(divergence, name)
        monkeypatch.setattr(divergence, name, lambda k, f=original: f(k, **sizes))
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    divergence.main(["--rounds", "2", "--save", "kept"])
    kept = json.loads((tmp_path / "kept.json").read_text())
    assert kept["command"] == "python -m benchmarks.records.divergence --rounds 2 --save kept"
    for row in kept["devices"].values():
        assert len(row["rounds"]) == len(row["shares"]) == 2
        assert row["shares"][0] == row["rounds"][0][1] / row["rounds"][0][0] - 1
        assert 0 < row["n_bytes"] < 50e6
    assert "limit +20%" in capsys.readouterr().out
