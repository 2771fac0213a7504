"""Reports for machines: what GitHub, SARIF's readers and JUnit's readers get, and costs against a baseline."""

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ddp_rehearsal.baseline import compare_with_baseline
from ddp_rehearsal.ci_reports import report_github, report_junit, report_sarif
from ddp_rehearsal.finding import Finding, Rehearsal, with_allowed

HERE = str(Path("train.py").resolve())
FOUND = Finding("copies", "w, 100%: <apart>\nlate.", "Use DDP.", ranks=(0, 1), step=3, place=(HERE, 7, "main"))
NOTE = Finding("arithmetic", "a note", "Look.", is_sure=False)
RUN = Rehearsal(command="train.py", gpus=2, are_real=False, steps=5, seconds=2.0, findings=[FOUND], notes=[NOTE])
GREEN = replace(RUN, findings=[], notes=[])


def test_annotations_of_github():
    first, second, last = report_github(RUN).splitlines()
    assert first == (
        "::error file=train.py,line=7,title=rehearsal%3A copies (ranks 0%2C 1%2C step 3)"
        "::w, 100%25: <apart>%0Alate.%0AUse DDP."
    )
    assert second == "::warning title=rehearsal%3A arithmetic::a note%0ALook." and "1 finding" in last
    assert report_github(replace(GREEN, error="no such module")).startswith("::error title=rehearsal%3A error::The scr")
    assert report_github(GREEN).count("\n") == 0


def test_what_is_allowed_becomes_a_note():
    allowed = with_allowed(RUN, ["copies"])
    assert allowed.exit_code == 0 and [note.kind for note in allowed.notes] == ["copies", "arithmetic"]
    assert with_allowed(RUN, ["files"]).exit_code == 1


def test_sarif():
    run = json.loads(report_sarif(RUN))["runs"][0]
    first, second = run["results"]
    place = first["locations"][0]["physicalLocation"]
    assert (first["ruleId"], first["level"], second["level"]) == ("copies", "error", "note")
    assert place == {"artifactLocation": {"uri": "train.py"}, "region": {"startLine": 7}}
    assert first["message"]["text"].endswith("late. Use DDP.") and "locations" not in second
    assert run["invocations"][0]["exitCode"] == 1 and run["invocations"][0]["executionSuccessful"]
    ids = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert {"copies", "arithmetic", "same", "costs"} <= ids
    odd = replace(FOUND, place=("my dir/é#1.py", 7, "main"))
    (odd,) = json.loads(report_sarif(replace(GREEN, findings=[odd])))["runs"][0]["results"]
    assert odd["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "my%20dir/%C3%A9%231.py"
    wrong = json.loads(report_sarif(replace(GREEN, error="x")))["runs"][0]
    assert wrong["results"][0]["ruleId"] == "error" and not wrong["invocations"][0]["executionSuccessful"]


def test_junit():
    suite = ElementTree.fromstring(report_junit(RUN))
    assert (suite.get("failures"), suite.get("errors")) == ("1", "0")
    (failure,) = suite.iter("failure")
    assert failure.get("message").startswith("w, 100%") and "train.py:7: " in failure.text
    assert not list(ElementTree.fromstring(report_junit(GREEN)).iter("failure"))
    error = ElementTree.fromstring(report_junit(replace(GREEN, error="no module")))
    assert error.get("errors") == "1" and next(error.iter("error")).get("message") == "no module"
    unseen = ElementTree.fromstring(report_junit(replace(GREEN, is_checked=False)))
    assert len(list(unseen.iter("skipped"))) == len(list(unseen.iter("testcase")))


def test_what_is_printed_has_no_control_characters():
    hostile = replace(FOUND, words="\x1b[31mred\x00")
    ElementTree.fromstring(report_junit(replace(RUN, findings=[hostile])))
    json.loads(report_sarif(replace(RUN, findings=[hostile])))


def test_costs_that_have_grown(tmp_path):
    path, costs = tmp_path / "costs.json", {"collectives": 2.0, "bytes": 1000.0, "memory": 5000.0}
    run = replace(GREEN, costs=costs)
    assert f"in {path} from now on" in compare_with_baseline(run, path).facts[-1]
    assert compare_with_baseline(run, path).exit_code == 0
    grown = compare_with_baseline(replace(run, costs={**costs, "bytes": 1500.0}), path)
    assert grown.exit_code == 1 and "1.50 KB, and 1.00 KB in costs.json" in grown.findings[0].words
    assert compare_with_baseline(replace(run, costs={**costs, "bytes": 900.0}), path).exit_code == 0
    with pytest.raises(ValueError, match="expected costs on 4 GPUs, got 2"):
        compare_with_baseline(replace(run, gpus=4), path)
    assert "No costs were seen" in compare_with_baseline(GREEN, path).facts[-1]


@pytest.mark.parametrize("text", ["", "[]", '{"gpus": 2}', '{"gpus": 2, "costs": {"bytes": "many"}}'])
def test_a_file_that_is_no_baseline(tmp_path, text):
    path = tmp_path / "costs.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="expected a file that --baseline has written"):
        compare_with_baseline(replace(GREEN, costs={"bytes": 1.0}), path)
    assert path.read_text() == text
