"""The files of the scores: what a learner has written in them is text, whatever it is."""

import csv
import io
import json

from d2lite_course.course_folder import GradedExercise
from d2lite_course.score_files import gradescope, score_page, scores_csv, write_scores
from d2lite_course.scores import ExerciseScore, SubmissionScore

EVIL = "<script>alert(1)</script>\"'&<img src=x onerror=alert(1)>"
PLACES = [GradedExercise("2.3", 10.0, 2, "settings_for", "exercise-3")]


def score(name="ann", text="ok", points=5.0):
    entry = ExerciseScore(
        name="2.3",
        title="Settings",
        points=points,
        of=10.0,
        said=text,
        notes=[text],
        code=text,
        printed=text,
        file=text,
    )
    return SubmissionScore(name, [text], [entry])


def test_every_text_is_escaped_on_the_page():
    page = score_page([score(EVIL, EVIL), score()])
    assert "<script" not in page and "<img" not in page and "&lt;script&gt;" in page
    assert "default-src 'none'" in page  # and if one were forgotten, it would not run
    assert page.count("5 of 10") == 6


def test_the_table_has_no_formula():
    for evil in ("=1+1", "+1", "-1", "@x", "\t=1", "\r=1"):
        rows = list(csv.reader(io.StringIO(scores_csv([score(evil, evil)], PLACES))))
        assert rows[0] == ["submission", "points", "of", "2.3", "notes"]
        assert rows[1][0].startswith("'") and rows[1][-1].startswith("'") and rows[1][1:4] == ["5.0", "10.0", "5.0"]


def test_gradescope_gets_its_form():
    found = gradescope(score(text="said"))
    assert found["score"] == 5.0 and found["tests"][0] == {
        "name": "2.3 Settings",
        "score": 5.0,
        "max_score": 10.0,
        "output": "said\nsaid",
        "output_format": "text",
    }


def test_all_files_are_written_inside_the_folder(tmp_path):
    names = ["../up", "a/b", "..", "ann", "\ud800"]
    write_scores(tmp_path / "out", [score(name) for name in names], PLACES)
    assert {p.name for p in tmp_path.iterdir()} == {"out"}
    assert len(list((tmp_path / "out").rglob("results.json"))) == len(names)
    assert [entry["name"] for entry in json.loads((tmp_path / "out" / "scores.json").read_text())][:4] == names[:4]
