"""The points of an answer, from what came back of the sandbox; here a function stands for the sandbox."""

import json

import pytest

from d2lite.exercises.as_data import as_data
from d2lite.exercises.exercise import Exercise
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

    def points_of(got, points):
        exercises = {name: {"points": number} for name, number in points.items()}
        course.write_settings({**course.settings(), "exercises": exercises})

        def in_sandbox(box, notebooks, requests):
            return {r["name"]: Collected(code="some code", got=got(r)) for r in requests}, []

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
