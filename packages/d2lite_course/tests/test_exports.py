"""What the exports for nbgrader and otter write, by the rules of their formats; both programs are not needed here."""

import ast
import json

import nbformat
import pytest

from d2lite_course import CourseFolder, export_nbgrader, export_otter, hand_out, nbgrader_export, otter_export
from d2lite_course.course_folder import check_calls
from d2lite_course.scores import ExerciseScore, SubmissionScore

# version 3 of nbgrader's schema: its own keys, those that a graded cell has besides, and the form of an id
STUBS = {"answer-4-1": "butterfly", "answer-4-3": "sum_on_owners"}
KEYS = {"schema_version", "grade", "solution", "locked", "task", "grade_id"}


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    found, _ = hand_out(tmp_path_factory.mktemp("course") / "out", [4, 11])
    settings = found.settings()
    settings["exercises"]["4.1"]["points"], settings["exercises"]["4.2"]["points"] = 2.5, 0
    found.write_settings(settings)
    return found


def marked(notebook):
    """{grade_id: cell} of the cells of a notebook that are nbgrader's."""
    return {c.metadata.nbgrader["grade_id"]: c for c in notebook.cells if "nbgrader" in c.metadata}


def released(course, chapter=4):
    """The notebook of an assignment, read and validated by nbformat."""
    name = course.notebook_of(chapter).name
    return nbformat.read(export_nbgrader(course) / "source" / f"chapter-{chapter:02}" / name, as_version=4)


def scores(points, words="what is said"):
    """Scores of exercises, {name: points} of 10."""
    entries = [
        ExerciseScore(
            name=name, title="", points=p, of=10.0, said=words, notes=["a note"], code="", printed="", file=""
        )
        for name, p in points.items()
    ]
    return SubmissionScore("notebook", ["one line"], entries)


def test_stubs_are_solution_cells_and_checks_are_graded_ones(course):
    notebook = released(course)
    nbformat.validate(notebook)
    cells = marked(notebook)
    assert list(cells) == ["answer-4-1", "check-4-1", "answer-4-3", "check-4-3"]  # 4.2 has no points
    for name, cell in cells.items():
        mark = dict(cell.metadata.nbgrader)
        is_check = name.startswith("check")
        assert set(mark) == KEYS | ({"points"} if is_check else set())
        assert (mark["schema_version"], mark["task"]) == (3, False)
        assert (mark["grade"], mark["locked"], mark["solution"]) == (is_check, is_check, not is_check)
        assert cell.cell_type == "code" and not cell.outputs
        if is_check:
            assert cell.source.startswith(("from d2lite.exercises import check", "check("))
        else:
            assert f"def {STUBS[name]}(" in cell.source and "# your code" in cell.source
    assert [cells[name].metadata.nbgrader.points for name in ("check-4-1", "check-4-3")] == [2.5, 10.0]
    assert check_calls(notebook)["4.1"] == ("butterfly", "exercise-1")


def test_an_assignment_has_what_check_needs_and_no_answer(course):
    place = export_nbgrader(course) / "source" / "chapter-11"
    assert [path.name for path in place.rglob("*.ipynb")] == [course.notebook_of(11).name]
    assert (place / "exercises" / "chapter_11.json").is_file() and (place / "glossary.md").is_file()
    assert not list(place.rglob("solutions")) and not list(place.rglob("seed"))
    text = (place / course.notebook_of(11).name).read_text()
    assert "](glossary.md" in text and "](index.ipynb" not in text and "](04-" not in text


def test_the_configuration_names_the_course_and_is_kept(course):
    config = export_nbgrader(course) / "nbgrader_config.py"
    text = config.read_text()
    ast.parse(text)
    assert f"course={str(course.path)!r}, sandbox=True" in text and "nbgrader.preprocessors.Execute" not in text
    config.write_text(text + "c.CourseDirectory.course_id = 'mine'\n")
    assert export_nbgrader(course) and config.read_text().endswith("'mine'\n")
    config.write_text(text)


def test_points_and_words_become_outputs_of_the_check_cells(course, monkeypatch):
    given = []
    monkeypatch.setattr(
        nbgrader_export,
        "grade_notebook",
        lambda *args, **kw: given.append(args) or scores({"4.1": 4.0, "4.3": 10.0}, "\ud800"),
    )
    notebook = released(course)
    notebook.cells = [c for c in notebook.cells if c.id != "exercise-3-check"]  # a learner has deleted it
    found, _ = nbgrader_export.graded(notebook, {"nbgrader": {"assignment": "chapter-04"}}, course.path)
    nbformat.validate(found)
    nbformat.writes(found).encode()
    assert given[0][1:] == (course.path, 4, True)
    cells = marked(found)
    for name, points in (("check-4-1", "1.0"), ("check-4-3", "10.0")):  # the cell of 4.1 has 2.5 points
        said, value = cells[name].outputs
        assert (said.name, said.text) == ("stdout", "?\na note\none line\n")
        assert value.output_type == "execute_result" and value.data["text/plain"] == points
    with pytest.raises(ValueError, match="expected one of the export, such as chapter-02, got 'homework'"):
        nbgrader_export.graded(notebook, {"nbgrader": {"assignment": "homework"}}, course.path)


def test_otter_gets_a_test_for_each_exercise_and_the_course(course):
    place = export_otter(course) / "chapter-04"
    config = json.loads((place / "otter_config.json").read_text())
    plugin = {"d2lite_course.otter_export.OtterPlugin": {"chapter": 4, "sandbox": True}}
    assert config == {"plugins": [plugin], "show_hidden": True}
    assert sorted(path.name for path in (place / "tests").iterdir()) == ["exercise-4-1.py", "exercise-4-3.py"]
    text = (place / "tests" / "exercise-4-1.py").read_text()
    found = {n.targets[0].id: ast.literal_eval(n.value) for n in ast.parse(text).body if isinstance(n, ast.Assign)}
    assert found == {"OK_FORMAT": False, "name": "exercise-4-1", "points": 2.5}
    kept = CourseFolder(place / "course")
    assert kept.seed() == course.seed() and kept.graded() == course.graded()


def test_otter_executes_scores_in_place_of_the_submission(tmp_path, monkeypatch):
    monkeypatch.setattr(otter_export, "grade_notebook", lambda *args, **kw: scores({"4.1": 4.0}, 'it\'s "\ud800"\n'))
    plugin = otter_export.OtterPlugin(str(tmp_path / "submission" / "04.ipynb"), {}, {"chapter": 4})
    written = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("raise SystemExit")])
    written.metadata.kernelspec = {"name": "mine", "display_name": "mine"}
    executed = plugin.before_execution(written)
    nbformat.validate(executed)
    assert len(executed.cells) == 1 and "kernelspec" not in executed.metadata
    name, value = executed.cells[0].source.split(" = ", 1)
    assert name == "d2lite_scores"
    assert ast.literal_eval(value) == {"exercise-4-1": (0.4, 'it\'s "\ud800"\n\na note\none line')}

    class Results:
        results = {"exercise-4-1": 2.5}

        def get_result(self, test):
            return type("Result", (), {"possible": self.results[test]})

        def update_score(self, test, score):
            self.given = test, score

    results = Results()
    plugin.after_grading(results)
    assert results.given == ("exercise-4-1", 1.0)
    with pytest.raises(ValueError, match="expected the path of a submission, got None"):
        otter_export.OtterPlugin(None, {}, {"chapter": 4}).before_execution(written)
