"""The grader's own cases: the solutions are right in them, and a drawn case is another one with another seed."""

import random
from dataclasses import replace

import pytest

from d2lite.exercises import all_exercises
from d2lite.exercises.run_cases import run_cases
from d2lite.exercises.specifications import load
from d2lite_course.recording import handed_out_exercises

FRESH = load("fresh_cases").FRESH
WITHOUT = ["11.3"]  # said in docs/teaching.md
ON_RANKS = [name for name in FRESH if all_exercises()[name].world_size > 1]


def test_each_exercise_has_fresh_cases():
    exercises = all_exercises()
    assert [name for name in exercises if name not in FRESH and exercises[name].draw is None] == WITHOUT
    assert FRESH.keys() <= exercises.keys()


@pytest.mark.parametrize("name", [name for name in FRESH if name not in ON_RANKS])
def test_the_solution_is_right_in_them_and_they_are_data(name):
    for seed in range(3):
        exercise = replace(all_exercises()[name], draw=FRESH[name]).with_drawn_cases(seed)
        assert all(result.right for result in run_cases(exercise, exercise.solution)), seed
    (copy,) = handed_out_exercises([exercise])
    assert len(copy.recorded) > len(all_exercises()[name].cases())


@pytest.mark.slow
def test_the_solutions_on_ranks_are_right_in_them():
    exercises = [replace(all_exercises()[name], draw=FRESH[name]).with_drawn_cases(7) for name in ON_RANKS]
    assert [copy.name for copy in handed_out_exercises(exercises)] == ON_RANKS  # a solution that fails is an error


@pytest.mark.parametrize("name", FRESH)
def test_another_seed_draws_other_cases(name):
    drawn = [repr(FRESH[name](random.Random(seed))) for seed in range(20)]
    assert len(set(drawn)) > (1 if name == "4.1" else 3)
    assert drawn[0] == repr(FRESH[name](random.Random(0)))
