"""The published pairs are read from a notebook's history: each output once, and only with both runs."""

import json
import subprocess

from benchmarks.records import published_pairs
from benchmarks.records.published_pairs import NOTEBOOK, pairs_of

ONE = "train(net, num_gpus=1, batch_size=256, lr=0.1)"
TWO = "train(net, num_gpus=2, batch_size=512, lr=0.2)"


def cell(source, printed):
    outputs = [{"text": [f"test acc: {printed} sec/epoch on [device(type='cuda', index=0)]\n"]}] if printed else []
    return {"cell_type": "code", "source": [source], "outputs": outputs}


def git(folder, *arguments):
    who = ["-c", "user.name=d2lite", "-c", "user.email=d2lite@example.org"]
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def test_pairs_are_read_from_the_history(tmp_path, monkeypatch, capsys):
    git(tmp_path, "init")
    (tmp_path / NOTEBOOK).parent.mkdir()
    first, last = ("0.92, 14.1", "0.80, 9.1"), ("0.91, 12.2", "0.73, 7.5")
    versions = [first, first, ("", "0.85, 9.3"), last]
    for i, (one, two) in enumerate(versions):
        notebook = {"cells": [{"cell_type": "markdown", "source": [str(i)]}, cell(ONE, one), cell(TWO, two)]}
        (tmp_path / NOTEBOOK).write_text(json.dumps(notebook))
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-m", str(i))
    git(tmp_path, "rm", NOTEBOOK)
    git(tmp_path, "commit", "-m", "gone")
    pairs = pairs_of(str(tmp_path))
    assert [(pair["one"]["accuracy"], pair["two"]["accuracy"]) for pair in pairs] == [(0.92, 0.8), (0.91, 0.73)]
    assert pairs[1]["two"] == {"batch_size": 512, "lr": 0.2, "accuracy": 0.73, "seconds_per_epoch": 7.5}
    monkeypatch.setattr(published_pairs, "RESULTS", tmp_path)
    published_pairs.main([str(tmp_path), "kept"])
    assert json.loads((tmp_path / "kept.json").read_text())["pairs"] == pairs and "2 pairs" in capsys.readouterr().out
