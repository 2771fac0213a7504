"""The score, and in words what is wrong."""

from d2lite.exercises import Exercise, Mistake, Score
from d2lite.exercises.judge import ENDLESS, NO_PROCESS, judge
from d2lite.exercises.run_cases import CaseResult, run_cases


def exercise(*mistakes, world_size=1):
    return Exercise(
        name="9.1",
        title="",
        solution=lambda x: 3 * x,
        cases=lambda: {"x = 1": (1,), "x = 2": (2,)},
        mistakes=mistakes,
        think="Think.",
        world_size=world_size,
    )


def scored(answer):
    return judge(exercise(), [(0, result) for result in run_cases(exercise(), answer)])


def test_what_is_the_same_in_all_cases_is_said_so():
    assert scored(lambda x: None).wrong == "it returns nothing: is there a return with the result?"
    assert scored(lambda x: 3).wrong == "it gives 3 in every case, whatever its arguments are."
    assert scored(lambda x: 1.5 * x).wrong == "in every case it gives 0.5 times what is expected."
    assert scored(lambda x: 3 * x + 1).wrong == "expected 3, got 4 (case: x = 1)."
    assert scored(lambda x: [3 * x]).wrong == "expected 3 (a number), got [3] (a list) (case: x = 1)."


def result(case, right, raised=False, fitting_mistakes=()):
    return CaseResult(
        case=case,
        right=right,
        expected="1",
        got="1" if right else "ValueError: no" if raised else "2",
        raised=raised,
        fitting_mistakes=fitting_mistakes,
    )


def test_a_case_is_right_if_it_is_right_on_all_ranks():
    two = exercise(world_size=2)
    seen = [(rank, result(case, True)) for case in ("x = 1", "x = 2") for rank in (0, 1)]
    assert judge(two, seen).solved
    seen[3] = (1, result("x = 2", False))
    assert judge(two, seen).right == 1
    assert judge(two, seen).wrong == "expected 1, got 2 (case: x = 2, rank 1)."


def test_a_later_result_of_a_case_counts():
    mistake = Mistake(lambda x: 0, "a mistake.", "Try.")
    seen = [(0, result(case, False, fitting_mistakes=found)) for found in ((), (0,)) for case in ("x = 1", "x = 2")]
    assert judge(exercise(mistake), seen) == Score("9.1", 0, 2, "a mistake.", "Try.")
    why_missing = "it took longer than 5 s."  # and yet all cases came
    assert judge(exercise(mistake), seen, why_missing).wrong == "a mistake."


def test_an_answer_that_hangs():
    why_missing = "it took longer than 5 s."
    assert judge(exercise(), [(0, result("x = 1", True))], why_missing) == Score(
        "9.1", 1, 2, "it took longer than 5 s (case: x = 2).", ENDLESS
    )
    assert judge(exercise(), [], "its process ended").wrong == "its process ended (case: x = 1)."
    assert judge(exercise(), [], "its process ended.").think == "Think."
    assert judge(exercise(), [], f"{NO_PROCESS}: a lock").wrong == f"{NO_PROCESS}: a lock"
    two = exercise(world_size=2)
    seen = [(rank, result(case, True)) for rank, case in ((0, "x = 1"), (1, "x = 1"), (1, "x = 2"))]
    assert judge(two, seen, why_missing).wrong == "it took longer than 5 s (case: x = 2)."  # in which rank 0 is
    waits = Mistake(None, "A rank waits.", "Who sends?")
    assert judge(exercise(waits), [], why_missing) == Score(
        "9.1", 0, 2, "it took longer than 5 s (case: x = 1). A rank waits.", "Who sends?"
    )
    failed = [(0, result("x = 1", False, raised=True))]
    assert judge(exercise(waits), failed, why_missing).wrong == "it raised ValueError: no (case: x = 1)."


def test_only_the_second_try_says_how_to_think():
    wrong = [(0, result(case, False)) for case in ("x = 1", "x = 2")]
    assert judge(exercise(), wrong, thinks=False).think == ""
    assert "How to think: Think." in str(judge(exercise(), wrong))


def test_a_score_as_text():
    assert str(Score("1.2", 5, 5)) == "Exercise 1.2: right in all 5 cases."
    assert str(Score("1.2", 0, 0)).startswith("Exercise 1.2: not attempted.")
    assert str(Score("1.2", 3, 5, "it is late.", "Hurry.")).splitlines() == [
        "Exercise 1.2: right in 3 of 5 cases.", "What is wrong: it is late.", "How to think: Hurry."
    ]  # fmt: skip
    assert not Score("1.2", 0, 0).solved


def test_a_notebook_shows_the_score_as_a_card_with_the_same_words():
    half = Score("9.1", 2, 5, "expected <b>, got <img src=x> (case: x).", "Which <shape>?")
    shown = half._repr_html_()
    assert half.state == "wrong" and "</span> wrong</div>" in shown and "Right in 2 of 5 cases." in shown
    assert "<img" not in shown and "got &lt;img src=x&gt; (case: x)." in shown
    assert "<b>How to think:</b> Which &lt;shape&gt;?" in shown
    states = [Score("9.1", right, total).state for right, total in ((0, 0), (0, 5), (3, 5), (5, 5))]
    assert states == ["not attempted", "wrong", "nearly", "right"]
    stub = Score("9.1", 0, 0)._repr_html_()
    assert stub.count("not attempted") == 1 and "Fill in the function" in stub
