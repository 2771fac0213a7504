"""An exercise that is handed out says of every answer what the exercise itself says, and has no code of an answer."""

import types
from pathlib import Path

import pytest

from d2lite.exercises import Exercise, Mistake, all_exercises
from d2lite.exercises.bounded import run_bounded
from d2lite.exercises.handed_out import chapter_as_json, chapter_from_json
from d2lite.exercises.judge import judge
from d2lite.exercises.run_cases import run_cases
from d2lite_course.observers import observers_of
from d2lite_course.recording import handed_out_exercises

BOOK = Path(__file__).parents[2] / "book" / "exercises"
CHAPTERS = sorted({int(name.partition(".")[0]) for name in all_exercises()})


def read_back(chapter, exercises):
    """The exercises as a student's copy has them."""
    text, refused = observers_of(BOOK / f"chapter_{chapter}.py", chapter)
    observers = types.ModuleType(f"observe_{chapter}")
    exec(text, vars(observers))
    assert not refused
    return {e.name: e for e in chapter_from_json(chapter_as_json(chapter, handed_out_exercises(exercises)), observers)}


def exercises_of(chapter, on_ranks):
    found = [e for name, e in all_exercises().items() if name.startswith(f"{chapter}.")]
    return [e for e in found if (e.world_size > 1) == on_ranks]


def said(exercise, answer):
    """What `check` says, for an answer in this process."""
    return str(judge(exercise, [(0, result) for result in run_cases(exercise, answer)]))


@pytest.mark.parametrize("chapter", [pytest.param(c, marks=pytest.mark.slow) if c == 2 else c for c in CHAPTERS])
def test_each_answer_draws_the_same_words(chapter):
    exercises = exercises_of(chapter, on_ranks=False)
    if not exercises:
        return
    copies = read_back(chapter, exercises)
    for exercise in exercises:
        copy = copies[exercise.name]
        assert not hasattr(copy, "solution") and not any(hasattr(hint, "answer") for hint in copy.mistakes)
        assert copy.cases().keys() == exercise.cases().keys() and copy.parameters() == exercise.parameters()
        answers = [m.answer for m in exercise.mistakes] + [lambda *args: None, lambda *args: [1], lambda *args: 1 / 0]
        for answer in (exercise.solution, *answers):
            assert said(copy, answer) == said(exercise, answer)
        assert "right in all" in said(copy, exercise.solution)


@pytest.mark.slow
@pytest.mark.parametrize("chapter", (5, pytest.param(6, marks=pytest.mark.release)))
def test_each_answer_on_ranks_draws_the_same_words(chapter):
    exercises = exercises_of(chapter, on_ranks=True)
    copies = read_back(chapter, exercises)
    for exercise in exercises:
        copy, mistake = copies[exercise.name], exercise.mistakes[0]
        seen, why_missing = run_bounded(copy, exercise.solution)
        assert "right in all" in str(judge(copy, seen, why_missing))
        seen, why_missing = run_bounded(copy, mistake.answer)
        found = judge(copy, seen, why_missing)
        assert (found.wrong, found.think) == (mistake.wrong, mistake.think)


def test_drawn_cases_are_among_those_that_were_drawn_before():
    exercise = all_exercises()["9.1"]
    (copy,) = handed_out_exercises([exercise], num_draws=3)
    seen = {tuple(copy.with_drawn_cases(seed).cases()) for seed in range(40)}
    assert len(seen) == 3
    assert all(labels[:-1] == tuple(exercise.cases()) for labels in seen)
    drawn = copy.with_drawn_cases(1)
    assert said(drawn, exercise.solution) == f"Exercise 9.1: right in all {len(exercise.cases()) + 1} cases."
    assert "left out" in said(drawn, exercise.mistakes[0].answer)


def test_arguments_that_are_no_data_are_refused():
    exercise = Exercise(
        name="1.1",
        title="",
        solution=lambda f: 1,
        cases=lambda: {"a function": (len,)},
        mistakes=(Mistake(max, "", ""),),
        think="",
    )
    with pytest.raises(TypeError, match="arguments of a case"):
        handed_out_exercises([exercise])


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "other"}', '{"format": "d2lite exercises 1"}'])
def test_a_file_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="expected exercises in the format"):
        chapter_from_json(text, types.ModuleType("observe_1"))
