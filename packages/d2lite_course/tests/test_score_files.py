"""The files of the scores: what a learner has written in them is text, whatever it is."""

import csv
import io
import json
from dataclasses import replace

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
    for evil in ("=1+1", "+1", "-1", "@x", "\t=1", "\r=1", " =1"):
        rows = list(csv.reader(io.StringIO(scores_csv([score(evil, evil)], PLACES))))
        assert rows[0] == ["submission", "points", "of", "2.3", "notes"]
        assert rows[1][0].startswith("'") and rows[1][-1].startswith("'") and rows[1][1:4] == ["5.0", "10.0", "5.0"]


def test_gradescope_gets_its_form():
    found = gradescope(score(text="said"))
    assert found["score"] == 5.0 and found["tests"][0] == {
        "name": "2.3 Settings",
        "score": 5.0,
        "max_score": 10.0,
        "output": "said",
        "output_format": "text",
    }


def test_all_files_are_written_inside_the_folder(tmp_path):
    names = ["../up", "a/b", "..", "ann", "\ud800"]
    write_scores(tmp_path / "out", [score(name) for name in names], PLACES)
    assert {p.name for p in tmp_path.iterdir()} == {"out"}
    assert len(list((tmp_path / "out").rglob("results.json"))) == len(names)
    assert [entry["name"] for entry in json.loads((tmp_path / "out" / "scores.json").read_text())][:4] == names[:4]


def test_no_separator_of_a_spreadsheet_makes_a_formula():
    for text in ("x;=1+1", "x|@y", "x; -1", "x,\t+1"):
        table = scores_csv([score(text, text)], PLACES)
        assert "'=" in table or "'@" in table or "'-" in table or "'+" in table


def test_signs_that_cannot_be_seen_are_written_out(tmp_path):
    write_scores(tmp_path, [score("a\u202eb\0c\udcfcd", "x\x1b[31m")], PLACES)
    page = (tmp_path / "scores.html").read_text()
    assert "a\\u202eb\\u0000c\\udcfcd" in page and "x\\u001b[31m" in page
    assert json.loads((tmp_path / "scores.json").read_text())[0]["name"] == "a\u202eb\0c\udcfcd"


def test_names_of_all_lengths_and_kinds_are_folders(tmp_path):
    names = ["a b" * 85, "ü" * 127, "a b" * 84 + "x", "é", "e\u0301", "CON", "..."]
    write_scores(tmp_path, [score(name) for name in names], PLACES)
    assert len(list(tmp_path.rglob("results.json"))) == len(names)


def test_an_exercise_of_which_the_grader_cannot_know_is_shown_and_does_not_count():
    unsure = replace(score().exercises[0], unsure="no network", points=2.0)
    found = SubmissionScore("ann", [], [unsure])
    assert (found.points, found.of, found.points_for_now) == (0, 0, 10.0)
    assert "LOOK AT THIS, it does not count yet: no network" in score_page([found])
    assert scores_csv([found], PLACES).splitlines()[1].startswith("ann,0,0,?,")
    assert gradescope(found)["score"] == gradescope(found)["tests"][0]["score"] == 10.0


def test_learners_are_counted_for_each_mistake_and_each_reason_is_said_once():
    def with_mistake(name, mistake):
        entry = replace(score().exercises[0], mistake=mistake, said=f"What is wrong: {mistake}", notes=[mistake] * 2)
        return SubmissionScore(name, [], [entry])

    page = score_page([with_mistake(f"l{i}", f"the sum is asked for. (case: {i})") for i in range(3)])
    assert '<td class="n">3</td><td>2.3 Settings</td><td>the sum is asked for.</td>' in page
    assert page.count("the sum is asked for. (case: 0)") == 1
    assert "more than one" not in score_page([with_mistake("ann", "x"), with_mistake("ben", "y")])
