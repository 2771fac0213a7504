"""The points of an answer, from what came back of the sandbox; here a function stands for the sandbox."""

import json

import pytest

from d2lite.exercises.as_data import as_data
from d2lite.exercises.exercise import Exercise
from d2lite.exercises.observed import Raised
from d2lite_course import grade, hand_out
from d2lite_course.sandbox import no_sandbox
from d2lite_course.sandboxed_run import Collected
from packages.d2lite_course.tests.notebooks import submission


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    found, _ = hand_out(tmp_path_factory.mktemp("course") / "out", [2])
    return found


@pytest.fixture
def graded(course, tmp_path, monkeypatch):
    """graded(got, {exercise: points}) returns {exercise: points of the answer}; got(request) is what came back."""
    folder = tmp_path / "handed in"
    folder.mkdir()
    (folder / "ann.ipynb").write_text(submission())
    monkeypatch.setitem(grade.__globals__, "find_sandbox", lambda: (no_sandbox(), ""))

    def points_of(got, points, saved="not right"):
        exercises = {name: {"points": number} for name, number in points.items()}
        course.write_settings({**course.settings(), "exercises": exercises})

        def in_sandbox(box, notebooks, requests):
            found = {r["name"]: Collected(code="some code", runs=True, saved=saved, got=got(r)) for r in requests}
            return found, []

        monkeypatch.setitem(grade.__globals__, "run_in_sandbox", in_sandbox)
        out = grade(folder, course.path, tmp_path / "scores", say=lambda words: None)
        (scores,) = json.loads((out / "scores.json").read_text())
        return {entry["name"]: entry["points"] for entry in scores["exercises"]}

    return points_of


def right(request, rank=0):
    """What is observed of a right answer to exercise 2.3, on a rank."""
    return {(rank, i): as_data((k * b, k * lr)) for i, (k, b, lr) in enumerate(request["cases"])}


def wrong(request):
    return {(0, i): as_data("wrong") for i in range(len(request["cases"]))}


def test_an_exercise_counts_by_its_cases_to_a_hundredth_of_a_point(graded):
    numbers = []

    def all_but_one(request):
        numbers.append(len(request["cases"]))
        return right(request) | {(0, 0): as_data("wrong")}

    points = graded(all_but_one, {"2.3": 10})
    (n,) = numbers
    assert points == {"2.3": round(10 * (n - 1) / n, 2)} != {"2.3": round(10 * (n - 1) / n)}


@pytest.mark.parametrize("rank", [1, -1, 7])
def test_what_a_rank_sends_that_does_not_exist_counts_for_nothing(graded, rank):
    assert graded(lambda request: wrong(request) | right(request, rank), {"2.3": 10}) == {"2.3": 0}


def test_a_case_that_does_not_exist_counts_for_nothing(graded):
    def more(request):
        return wrong(request) | {(0, len(request["cases"])): as_data((1, 1)), (0, -1): as_data((1, 1))}

    assert graded(more, {"2.3": 10}) == {"2.3": 0}


def test_what_was_graded_before_has_the_points_of_today(graded):
    assert graded(right, {"2.3": 10}) == {"2.3": 10}
    assert graded(right, {"2.3": 4}) == {"2.3": 4}


def test_each_exercise_has_cases_drawn_from_a_seed_of_its_own(course, graded, monkeypatch):
    drawn = []

    def with_drawn_cases(self, seed, usual=Exercise.with_drawn_cases):
        drawn.append((self.name, seed))
        return usual(self, seed)

    monkeypatch.setattr(Exercise, "with_drawn_cases", with_drawn_cases)

    def seeds():
        drawn.clear()
        graded(wrong, {"2.1": 1, "2.3": 1})
        return dict(drawn)

    first = seeds()
    assert first.keys() == {"2.1", "2.3"} and first["2.1"] != first["2.3"]
    assert seeds() == first
    before = course.seed_file.read_text()
    course.seed_file.write_text("another course")
    try:
        assert not set(seeds().values()) & set(first.values())
    finally:
        course.seed_file.write_text(before)


def test_a_case_in_which_most_mistakes_are_right_does_not_count_alone(course, graded):
    """Of 2.3 with one device all is left as it is: who returns that everywhere has not solved a case."""

    def unchanged(request):
        return {(0, i): as_data((b, lr)) for i, (k, b, lr) in enumerate(request["cases"])}

    assert graded(unchanged, {"2.3": 10}) == {"2.3": 0}

    def nearly(request):
        return right(request) | {(0, 1): as_data(None)}

    assert graded(nearly, {"2.3": 9})["2.3"] > 5


def test_the_same_in_every_case_does_not_count(course, graded):
    def constant(request):
        k, b, lr = request["cases"][1]
        return {(0, i): as_data((k * b, k * lr)) for i in range(len(request["cases"]))}

    assert graded(constant, {"2.3": 8}) == {"2.3": 0}


def test_a_mended_solution_is_graded_again(course, graded):
    assert graded(right, {"2.3": 10}) == {"2.3": 10}
    file = course.exercises / "chapter_2.py"
    before = file.read_text()
    try:
        right_one = "solution=lambda k, batch_size, lr: (k * batch_size, k * lr)"
        assert right_one in before
        file.write_text(before.replace(right_one, right_one.replace("k * lr", "lr")))
        assert graded(right, {"2.3": 10})["2.3"] < 5
    finally:
        file.write_text(before)


def test_an_answer_that_cannot_be_run_here_does_not_count(course, graded, tmp_path):
    def fails(request):
        return {(0, i): as_data(Raised("NameError", "x")) for i in range(len(request["cases"]))}

    assert graded(fails, {"2.3": 10}) == {"2.3": 0}
    assert json.loads((tmp_path / "scores" / "scores.json").read_text())[0]["of"] == 10
    graded(fails, {"2.3": 9}, saved="right")
    (scores,) = json.loads((tmp_path / "scores" / "scores.json").read_text())
    assert (scores["points"], scores["of"]) == (0, 0) and "NameError" in scores["exercises"][0]["unsure"]
    assert ",?," in (tmp_path / "scores" / "scores.csv").read_text()


def test_two_folders_of_one_name_do_not_share_their_scores(course, graded, tmp_path):
    graded(right, {"2.3": 10})
    other = tmp_path / "week 2" / "handed in"
    other.mkdir(parents=True)
    (other / "ann.ipynb").write_text(submission())
    with pytest.raises(ValueError, match="expected a folder for the scores of .*week 2.*--out"):
        grade(other, course.path, tmp_path / "scores", say=lambda words: None)
