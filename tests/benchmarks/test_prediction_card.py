"""The record of prediction cards: its tables, what is kept, and one small run on two hosts."""

import json
import os
import re

import pytest

from benchmarks.records import prediction_card as record
from benchmarks.report import RESULTS
from d2lite.labs.chapter_16 import card_from_json, compare_with_measured, measured_from_json
from tools.cluster import hosts

why_not = hosts.why_no_namespaces() if os.name != "nt" else "this is Windows"
namespaces_only = pytest.mark.skipif(bool(why_not), reason=f"no network namespaces: {why_not}")


def test_the_tables_have_what_was_changed_and_what_was_found():
    rows = [
        {"change": "a delay", "expected": "latency", "predicted_s": 0.3, "measured_s": 0.42, "holds": False}
        | {"culprit": culprit, "terms": {"compute": -0.001, "latency": 0.12, "overlap": 0.002}}
        for culprit in ("latency", None)
    ]
    rows.append(rows[0] | {"change": "nothing", "expected": None, "holds": True, "culprit": None})
    hidden = {"mbit": 1000, "predicted_s": 0.3, "measured_s": 0.31, "communication_s": 0.1}
    hidden |= {"predicted_hidden_s": 0.09, "measured_hidden_s": 0.08}
    lines = record.tables(rows, [hidden]).splitlines()
    assert lines[2] == "| a delay | latency | 300 ms | 420 ms | latency | latency +120 ms, overlap +2 ms |"
    assert "| not sure |" in lines[3] and "| nothing | none |" in lines[4] and "| holds |" in lines[4]
    assert lines[-1] == "| 1 Gb/s, no delay added | 300 ms | 310 ms | 100 ms | 90 ms | 80 ms |"


def test_what_is_kept_gives_the_same_verdicts_again():
    text = (RESULTS / "prediction-card-2-cores.json").read_text()
    kept = json.loads(text)
    card = card_from_json(json.dumps(kept["card"]))
    assert kept["command"].startswith("python -m benchmarks.records.prediction_card") and kept["machine"]["torch"]
    assert not re.search(r"/(home|root|tmp|work|Users)\b", text)
    assert {row["change"] for row in kept["rows"]} == set(record.CHANGES)
    for row in kept["rows"]:
        verdict = compare_with_measured(card, measured_from_json(json.dumps(row["measured"])))
        assert (verdict.holds, verdict.culprit, verdict.words) == (row["holds"], row["culprit"], row["words"])
        assert row["expected"] == record.CHANGES[row["change"]][0]
    page = (RESULTS / "prediction-card-2-cores.md").read_text()
    assert record.tables(kept["rows"], kept["links"]) in page


def test_the_run_with_the_fewest_other_programs_counts(monkeypatch):
    shares = iter([0.5, 0.3, 0.4, 0.6, 0.1, 0.0])
    monkeypatch.setattr(record, "measured_once", lambda *link: ({}, {}, next(shares)))
    assert record.measured(100, 0, [], tries=3) == {"card": {}, "measured": {}, "others": 0.3, "runs": 3}
    assert record.measured(100, 0, [], tries=3) == {"card": {}, "measured": {}, "others": 0.1, "runs": 2}


def test_without_namespaces_nothing_is_measured(monkeypatch, capsys):
    monkeypatch.setattr(hosts, "why_no_namespaces", lambda: "no root")
    assert record.main([]) == 1
    assert "No network namespaces: no root." in capsys.readouterr().out


@pytest.mark.release
@namespaces_only
def test_a_small_run_on_two_hosts(capsys):
    small = ["width=64", "batch-size=64", "steps=2", "bucket-mb=0.02"]
    options = ["--repeats=1", "--links", "--tries=1", "--changes", "rank 1 is 300 ms slower"]
    assert record.main([*options, "--options", *small]) == 0
    assert "| rank 1 is 300 ms slower | straggler |" in capsys.readouterr().out
