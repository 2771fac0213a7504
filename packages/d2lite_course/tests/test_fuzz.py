"""One student never costs another a point: damaged archives, odd names, notebooks and messages beside a good one."""

import json
import os
import random
import sys
import zipfile

import pytest

from d2lite.exercises.as_data import as_data
from d2lite_course import grade, hand_out
from d2lite_course.sandbox import no_sandbox
from d2lite_course.sandboxed_run import Collected, _collect
from d2lite_course.submitted_code import ReadNotebook, cells_of, code_of
from packages.d2lite_course.tests.notebooks import submission

GOOD = submission()
KINDS = "float complex bytes tensor array device dict tuple set raised unfit unusable sealed other object".split()
KEYS = ["rank", "case", "got", "stub", "unfit", "why", "printed", "code", "notes", "file", "saved", "runs", "problem"]
METHODS = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    found, _ = hand_out(tmp_path_factory.mktemp("course") / "out", [2])
    found.write_settings({**found.settings(), "exercises": {"2.1": {"points": 10}, "2.3": {"points": 10}}})
    return found


def some_value(rng, depth=3):
    """A value as JSON can hold it, often almost one that `as_data` makes."""
    plain = [None, True, 0, -1, 1, 2**70, 0.5, 1e400, float("nan"), "", "1", "x" * 50, "\ud800", "float32"]
    if not depth or rng.random() < 0.3:
        return rng.choice(plain)
    if rng.random() < 0.4:
        return [some_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    keys = rng.sample([*KINDS, "shape", "dtype", "message", "in_observe", "text", "think", "why", "fields"], 3)
    return {key: some_value(rng, depth - 1) for key in keys}


def some_notebook(rng):
    text = list(GOOD)
    for _ in range(rng.choice([0, 1, 3, 30])):
        text[rng.randrange(len(text))] = chr(rng.choice([0, 10, 34, 37, 92, 123, 0x202E, 0xD800, rng.randrange(128)]))
    return "".join(text).encode(errors="replace")


def some_file(rng, path):
    """Write a submission in one of the forms that learners have."""
    if rng.random() < 0.3:
        path.write_bytes(some_notebook(rng))
        return
    with zipfile.ZipFile(path, "w", rng.choice(METHODS)) as archive:
        for i in range(rng.randrange(3)):
            archive.writestr(rng.choice(["a/", "", "\xfc", "x" * 300]) + f"{i}.ipynb", some_notebook(rng))
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice([0, 1, 20])):
        data[rng.randrange(len(data))] = rng.randrange(256)
    path.write_bytes(data[: rng.choice([len(data), rng.randrange(len(data) + 1)])])


def some_name(rng, i):
    letters = [b"a", b"=", b";", b" ", b".", b"<", b"\xfc", b"\xe2\x80\xae", b"\n", b"'", b"\xf0\x9f\x98\x80"]
    start = b"%d" % i + b"".join(rng.choices(letters, k=rng.choice([1, 5, 240])))
    return os.fsdecode(start[:249] + rng.choice([b".zip", b".ipynb"]))


def fuzz(course, folder, rng, number, monkeypatch):
    folder.mkdir()
    (folder / "good.ipynb").write_text(GOOD)
    for i in range(number):
        some_file(rng, folder / some_name(rng, i))

    def in_sandbox(box, notebooks, requests):
        found = {request["name"]: Collected() for request in requests}
        unread = []
        for request in requests:
            if list(notebooks.values()) == [GOOD]:
                answers = {"2.3": lambda k, b, lr: (k * b, k * lr)}
                if request["name"] in answers:
                    got = {(0, i): as_data(answers["2.3"](*args)) for i, args in enumerate(request["cases"])}
                    found["2.3"] = Collected(code="x", runs=True, got=got)
                continue
            for text in notebooks.values():
                try:
                    read = ReadNotebook(cells_of(text))
                except ValueError as error:
                    unread.append(str(error))
                else:
                    code_of(read, request["name"], request["function"], request["cell"], rng.random() < 0.5)
            for _ in range(4):
                message = {key: some_value(rng) for key in rng.sample(KEYS, rng.randrange(len(KEYS)))}
                message |= rng.choice([{}, {"rank": 0, "case": rng.randrange(6), "got": some_value(rng)}])
                _collect(found[request["name"]], json.loads(json.dumps(message)))
        return found, unread

    monkeypatch.setitem(grade.__globals__, "find_sandbox", lambda: (no_sandbox(), ""))
    monkeypatch.setitem(grade.__globals__, "run_in_sandbox", in_sandbox)
    out = grade(folder, course.path, folder.with_name("scores of " + folder.name), jobs=1, say=lambda words: None)
    scores = json.loads((out / "scores.json").read_text())
    assert len(scores) == number + 1 == len(list((out / "gradescope").iterdir()))
    (good,) = (entry for entry in scores if entry["name"] == "good")
    assert {e["name"]: e["points"] for e in good["exercises"]}["2.3"] == 10.0
    page = (out / "scores.html").read_text()
    assert "\0" not in page and "\u202e" not in page
    return scores


@pytest.mark.skipif(sys.platform != "linux", reason="names that are not UTF-8")
def test_some_odd_submissions_cost_a_good_one_nothing(course, tmp_path, monkeypatch):
    fuzz(course, tmp_path / "in", random.Random(0), 80, monkeypatch)


@pytest.mark.release
@pytest.mark.skipif(sys.platform != "linux", reason="names that are not UTF-8")
@pytest.mark.parametrize("seed", range(10))
def test_ten_thousand_odd_submissions_cost_a_good_one_nothing(course, tmp_path, monkeypatch, seed):
    fuzz(course, tmp_path / "in", random.Random(seed + 1), 1000, monkeypatch)


def test_what_the_grader_cannot_do_becomes_words_in_its_row(course, tmp_path, monkeypatch):
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("ann", "ben"):
        (folder / f"{name}.ipynb").write_text(GOOD)

    def in_sandbox(box, notebooks, requests):
        if "ben.ipynb" in notebooks:
            raise RuntimeError("no more processes")
        return {r["name"]: Collected(code="x", runs=True, saved="not right") for r in requests}, []

    monkeypatch.setitem(grade.__globals__, "find_sandbox", lambda: (no_sandbox(), ""))
    monkeypatch.setitem(grade.__globals__, "run_in_sandbox", in_sandbox)
    out = grade(folder, course.path, tmp_path / "scores", say=lambda words: None)
    ann, ben = json.loads((out / "scores.json").read_text())
    assert (ann["of"], ben["of"]) == (20, 0) and "RuntimeError: no more processes" in ben["wrong"][0]
