"""The puzzle of pipeline schedules: what it says to each kind of answer, and what it draws of it."""

import html
import math

import pytest

from d2lite.labs.chapter_15 import SchedulePuzzle, one_f_one_b, shortest_step


def answered(*lines, **arguments):
    puzzle = SchedulePuzzle(**arguments)
    for field, line in zip(puzzle.lines, lines, strict=True):
        field.value = line
    return puzzle


def drawn(puzzle):
    return sorted(text for bar in puzzle.figure.data for text in bar.text or ())


def is_refused(puzzle):
    return not puzzle.is_legal and not puzzle.is_solved and math.isnan(puzzle.step_ms)


def test_it_is_empty_in_the_beginning():
    puzzle = SchedulePuzzle()
    assert puzzle.summary.value == "<b>Empty</b>: write the passes of each rank."
    assert "nothing can run yet" in puzzle.figure.layout.title.text and drawn(puzzle) == []
    assert is_refused(puzzle) and puzzle.best_ms == shortest_step(2, 4, 4) == 15
    assert "4 microbatches, at most 4 held on a rank at a time." in puzzle.view.children[1].value
    assert "I0" not in puzzle.view.children[1].value
    assert len(puzzle.lines) == 2 and repr(puzzle).startswith("SchedulePuzzle")


def test_1f1b_solves_it():
    lines = [" ".join(map(str, one_f_one_b(stage, 2, 4))) for stage in range(2)]
    puzzle = answered(*lines, most_held=2)
    assert puzzle.is_legal and puzzle.is_solved and puzzle.step_ms == puzzle.best_ms == 15
    assert puzzle.summary.value == (
        "It runs: <b>15 ms per step</b>, bubble 20%, predicted. <b>Solved</b>: no schedule under this limit is shorter."
    )
    assert drawn(puzzle) == sorted(" ".join(lines).split())


def test_one_that_runs_longer():
    puzzle = answered("F0 B0 F1 B1", "F0 B0 F1 B1", num_microbatches=2)
    assert puzzle.is_legal and not puzzle.is_solved and (puzzle.step_ms, puzzle.best_ms) == (12, 9)
    assert puzzle.summary.value == (
        "It runs: <b>12 ms per step</b>, bubble 50%, predicted. The shortest step under this limit is 9 ms."
    )
    puzzle.lines[0].value = "F0 F1 B0 B1"
    assert puzzle.is_solved and puzzle.step_ms == 9


def test_under_the_limit_of_one_it_is_the_shortest():
    assert answered("F0 B0 F1 B1", "F0 B0 F1 B1", num_microbatches=2, most_held=1).is_solved


def test_one_that_cannot_run_names_the_dependency_and_is_drawn_up_to_it():
    puzzle = answered("F0 B0 F1 B1", "F0 F1 B0 B1", num_microbatches=2)
    assert puzzle.summary.value == (
        "<b>Not yet</b>: No rank can go on: rank 0 waits with 0B0 for 1B0; rank 1 waits with 1F1 for 0F1. "
        "Each waits for a pass that comes after one which waits itself."
    )
    assert is_refused(puzzle) and drawn(puzzle) == ["0F0", "1F0"]
    assert "your schedule, predicted" in puzzle.figure.layout.title.text
    puzzle.lines[1].value = "F0 B1 B0 F1"
    assert "rank 1, pass 2: 1B1 (the backward pass of microbatch 1 through stage 1) needs 1F1 first" in (
        puzzle.summary.value
    )


def test_a_pass_that_is_missing():
    puzzle = answered("F0 B0", "F0", num_microbatches=1)
    assert html.unescape(puzzle.summary.value) == (
        "<b>Not yet</b>: stage 1, microbatch 0: the backward pass 1B0 is in no rank's list."
    )
    assert is_refused(puzzle) and drawn(puzzle) == ["0F0", "1F0"]


def test_a_microbatch_that_there_is_not():
    puzzle = answered("F0 B0", "F1 F0 B0", num_microbatches=1)
    assert "rank 1, pass 1: 1F1: microbatch: expected a whole number from 0 to 0, got 1." in puzzle.summary.value
    assert is_refused(puzzle) and drawn(puzzle) == ["0F0"]


def test_memory_for_fewer_microbatches():
    puzzle = answered("F0 F1 B0 B1", "F0 F1 B0 B1", num_microbatches=2, most_held=1)
    assert puzzle.summary.value == (
        "<b>Not yet</b>: rank 0 holds the activations of 2 microbatches at a time, and has memory for 1. "
        "A B must come before the next F."
    )
    assert is_refused(puzzle) and len(drawn(puzzle)) == 8
    puzzle.lines[0].value = "F0 B0 F1 B1"
    assert is_refused(puzzle)  # rank 1 waits for F1


def test_a_rank_has_the_stage_of_its_number():
    puzzle = answered("0F0 1F0 1B0 0B0", "", num_microbatches=1)
    assert puzzle.summary.value == "<b>Not yet</b>: rank 0, pass 2: 1F0 is of stage 1; rank i has stage i."
    assert is_refused(puzzle)
    assert is_refused(answered("1F0 1B0", "0F0 0B0", num_microbatches=1))
    assert answered("0F0 0B0", "1F0 1B0", num_microbatches=1).is_solved


@pytest.mark.parametrize("line", ["F0 B", "F0 <img src=x onerror=alert(1)> B0", "F0 & B0"])
def test_a_word_that_is_no_pass_is_shown_as_it_is_written(line):
    puzzle = answered(line, "F0 B0", num_microbatches=1)
    assert puzzle.summary.value.startswith("<b>Not yet</b>: ") and "is no pass. Write passes like F0 or B0" in (
        puzzle.summary.value
    )
    assert "<img" not in puzzle.summary.value + puzzle._draw_static().replace("<img alt=", "")
    assert "& B0" not in puzzle.summary.value and "&amp; B0" not in puzzle.summary.value
    assert is_refused(puzzle) and drawn(puzzle) == []


def test_halves_where_they_are_allowed():
    lines = ("F0 F1 I0 W0 B1", "F0 I0 F1 W0 I1 W1")
    refused = answered(*lines, num_microbatches=2)
    assert refused.summary.value == "<b>Not yet</b>: in this puzzle a backward pass is one pass, B."
    assert is_refused(refused)
    puzzle = answered(*lines, num_microbatches=2, split=True)
    assert "I0 and W0 (the two halves of B0)" in puzzle.view.children[1].value
    assert puzzle.is_legal and not puzzle.is_solved and (puzzle.step_ms, puzzle.best_ms) == (8, 7)
    assert {bar.name for bar in puzzle.figure.data if bar.x} == {
        "forward", "backward", "backward, input", "backward, weights"
    }  # fmt: skip
    assert answered("F0 F1 I0 W0 I1 W1", "F0 I0 F1 I1 W0 W1", num_microbatches=2, split=True).is_solved
    whole = answered("F0 F1 B0 B1", "F0 B0 F1 B1", num_microbatches=2, split=True)
    assert whole.is_legal and whole.step_ms == 9


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"num_ranks": 5}, ValueError, "num_ranks: expected a whole number from 1 to 4, got 5."),
        ({"num_microbatches": 9}, ValueError, "num_microbatches: expected a whole number from 1 to 8, got 9."),
        ({"most_held": 0}, ValueError, "most_held: expected a positive whole number, got 0."),
        ({"split": "no"}, TypeError, "split: expected True or False, got 'no' (str)."),
        ({"num_ranks": 2.0}, TypeError, "num_ranks: expected a whole number from 1 to 4, got 2.0 (float)."),
    ],
)
def test_other_sizes_are_refused(arguments, error, words):
    with pytest.raises(error) as caught:
        SchedulePuzzle(**arguments)
    assert str(caught.value) == words
