"""`check`: processes of bounded time, memory and output, the ledger, and what is refused."""

import dataclasses
import functools
import json
import os
import re
import threading

import cloudpickle
import psutil
import pytest
import torch

import d2lite
from d2lite.exercises import Exercise, check
from d2lite.exercises import check as same_check
from d2lite.exercises.check import _tries
from d2lite.exercises.run_cases import run_cases
from d2lite.exercises.specifications import find_exercise
from d2lite.replica_threads import _cores
from notebook_ranks.pickling import pickled_job
from tests.by_value import by_value

pools = pytest.mark.skipif(os.name == "nt", reason="Workers needs Linux or macOS")


@pytest.fixture(autouse=True)
def ledger(tmp_path, monkeypatch):
    monkeypatch.setenv("D2LITE_LEDGER", str(tmp_path / "ledger.json"))
    _tries.clear()
    return tmp_path / "ledger.json"


@pytest.fixture
def nothing_left():
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


def entry(ledger, name="1.2"):
    return json.loads(ledger.read_text())["exercises"][name]


@by_value
def right(params_n_bytes, cut_n_bytes_per_example):
    print("I divide", params_n_bytes)
    return params_n_bytes // cut_n_bytes_per_example + 1


@by_value
def endless(params_n_bytes, cut_n_bytes_per_example):
    while cut_n_bytes_per_example != 7:
        pass
    return 1


def test_the_room_and_the_package_offer_it():
    assert d2lite.check is check is same_check and "check" in dir(d2lite) and "check" in d2lite.__all__


@pytest.mark.slow
@pools
def test_a_right_answer_its_output_and_the_ledger(ledger, capsys, nothing_left):
    score = check("1.2", right)
    assert score.solved
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "I divide 516272" and printed[-1] == "Exercise 1.2: right in all 5 cases."
    found = entry(ledger)
    assert (found["solved"], found["right"], found["total"], found["tries"]) == (True, 5, 5, 1)


@pytest.mark.slow
@pools
def test_an_endless_loop_takes_too_long_and_its_process_is_gone(ledger, capsys, nothing_left):
    score = check(dataclasses.replace(find_exercise("1.2"), limit_s=1.0), endless)
    assert score.wrong.startswith("it took longer than 1 s (case: parameters 516,272") and score.right == 0
    assert not score.think
    assert entry(ledger)["solved"] is False
    timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    assert not [timer for timer in timers if not timer.name.startswith("pytest_timeout")]


@functools.cache
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


by_value(by_value(fibonacci).__wrapped__)  # as in a cell


@functools.lru_cache(maxsize=5, typed=True)
def one_more(n):
    return 1 + n


by_value(by_value(one_more).__wrapped__)


@pytest.mark.slow
@pools
def test_a_cached_function_is_an_answer_also_one_that_calls_itself(nothing_left):
    cases = {str(n): (n,) for n in (1, 2, 60)}
    exercise = Exercise(
        name="mine.2",
        title="",
        solution=lambda n: {1: 1, 2: 1, 60: 1548008755920}[n],
        cases=lambda: cases,
        mistakes=(),
        think="",
    )
    assert check(exercise, fibonacci).solved  # without the cache 60 takes longer than 5 s
    plus_one = dataclasses.replace(exercise, solution=lambda n: n + 1)
    assert check(plus_one, one_more).solved
    again = cloudpickle.loads(pickled_job(one_more, (), 1))[0]
    assert again.cache_parameters() == {"maxsize": 5, "typed": True} and again.__name__ == "one_more"
    assert again(3) == again(3) == 4 and again.cache_info().hits == 1
    assert cloudpickle.loads(pickled_job(_cores, (), 1))[0] is _cores  # it is cached, too, and can be imported


def reads_what_is_not_there(answer, x):
    return answer(x).missing


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"observe": reads_what_is_not_there},
            "case 3: expected an `observe` that accepts the solution, got AttributeError: 'int' object has no "
            "attribute 'missing'. The specification is wrong, not the answer.",
        ),
        (
            {"observe": lambda answer, x: answer(x / 0)},
            "case 3: expected an `observe` that accepts the solution, got ZeroDivisionError: division by zero.",
        ),
        ({"solution": lambda x: x[0]}, "case 3: expected a solution that returns, got TypeError: 'int' object is not"),
        (
            {"cases": lambda: {"3": (3,), "two": ()}},
            "case two: expected as many arguments as the solution takes, got 0. The specification is wrong, not the",
        ),
        ({"cases": dict}, "exercise mine.1: expected one case or more, got none."),
    ],
)
def test_a_wrong_specification_is_not_the_learners_fault(change, message, ledger):
    own = Exercise(
        name="mine.1",
        title="Twice",
        solution=lambda x: 2 * x,
        cases=lambda: {"3": (3,), "4": (4,)},
        mistakes=(),
        think="Add.",
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        check(dataclasses.replace(own, **change), lambda x: x + x)
    assert not ledger.exists()


def test_drawn_cases_are_new_each_time_and_the_same_within_a_check(in_process):
    def draw(numbers):
        x = numbers.randrange(10**9)
        return {f"drawn: {x:,}": (x,)}

    own = Exercise(
        name="mine.3",
        title="Twice",
        solution=lambda x: 2 * x,
        cases=lambda: {"3": (3,)},
        mistakes=(),
        think="Add.",
        draw=draw,
    )
    table, asked = {3: 6}, {3}

    def from_a_table(x):
        asked.add(x)
        return table.get(x, 0)

    for _ in range(3):  # a learner writes down what `check` says
        table |= {x: 2 * x for x in asked}
        score = check(own, from_a_table)
        assert not score.solved and score.total == 2 and "(case: drawn: " in score.wrong
    assert len(asked) == 4
    assert check(own, lambda x: x + x).solved
    assert own.with_drawn_cases(1).cases() == own.with_drawn_cases(1).cases() != own.with_drawn_cases(2).cases()
    assert list(own.cases()) == ["3"]


@by_value
def ends_the_process(params_n_bytes, cut_n_bytes_per_example):
    if cut_n_bytes_per_example == 7:
        os._exit(3)
    return params_n_bytes // cut_n_bytes_per_example + 1


@pools
@pytest.mark.slow
def test_an_answer_that_ends_its_process(nothing_left):
    score = check("1.2", ends_the_process)
    assert score.right == 2 and score.wrong.startswith("its process ended: rank 0 died (exit code 3)")


@by_value
def takes_all_memory(params_n_bytes, cut_n_bytes_per_example):
    if cut_n_bytes_per_example == 7:
        taken = []
        while len(taken) < 400:  # 40 GB
            taken.append(b"x" * 10**8)
    if cut_n_bytes_per_example == 6_400:
        torch.ones(10**10)
    return params_n_bytes // cut_n_bytes_per_example + 1


@pytest.mark.slow
@pools
def test_an_answer_that_takes_all_memory_and_goes_on_with_the_next_case(nothing_left):
    score = check(dataclasses.replace(find_exercise("1.2"), limit_s=60.0), takes_all_memory)
    assert (
        score.right == 3
        and score.wrong == "it needs too much memory (case: parameters 7 bytes, cut 7 bytes per example)."
    )


@by_value
def floods(params_n_bytes, cut_n_bytes_per_example):
    for i in range(20_000):
        print("flood", i)
    print("x" * 10**6)
    os.write(1, b"y\n" * 10_000)
    return params_n_bytes // cut_n_bytes_per_example + 1


@pytest.mark.slow
@pools
def test_a_flood_of_output_is_cut(capsys, nothing_left):
    assert check(dataclasses.replace(find_exercise("1.2"), limit_s=60.0), floods).solved
    printed = capsys.readouterr().out
    assert len(printed) < 5_000 and printed.startswith("flood 0\n")
    assert "the rest of what it prints is left out" in printed and printed.endswith("right in all 5 cases.\n")


@pytest.mark.slow
@pools
def test_an_answer_that_cannot_be_sent_to_a_process(nothing_left):
    lock = threading.Lock()
    score = check("1.2", by_value(lambda p, c: p // c + 1 if lock else 0))
    assert score.wrong.startswith("it cannot run in a process of its own: ") and "lock" in score.wrong


def test_a_stub_is_not_attempted_and_starts_no_process(ledger, capsys, monkeypatch):
    monkeypatch.setitem(check.__globals__, "run_bounded", None)
    assert check("1.2", lambda p, c: None) == d2lite.exercises.Score("1.2", 0, 0)
    assert "not attempted" in capsys.readouterr().out and not ledger.exists()


@pytest.fixture
def in_process(monkeypatch):
    """Run answers in this process: these tests are about what `check` makes of the results."""

    def run(exercise, answer):
        return [(0, result) for result in run_cases(exercise, answer)], ""

    monkeypatch.setitem(check.__globals__, "run_bounded", run)


def test_the_first_wrong_try_says_what_is_wrong_and_the_second_how_to_think(in_process, ledger, capsys):
    for think in (False, True, True):
        score = check("1.2", lambda p, c: p // c)
        assert score.wrong.startswith("at this batch size") and bool(score.think) is think
        assert ("How to think" in capsys.readouterr().out) is think
    assert check("1.1", lambda n, b: (n // b, b)).think == ""  # another exercise
    assert entry(ledger)["tries"] == 3


def test_a_notebook_shows_a_card_and_keeps_the_text(in_process, ledger, capsys, monkeypatch):
    shown = []
    monkeypatch.setitem(check.__globals__, "notebook_shell", lambda: "a kernel")
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw: shown.append(bundle))
    score = check("1.2", lambda p, c: p // c + 1)
    assert capsys.readouterr().out == ""
    assert shown == [{"text/html": score._repr_html_(), "text/plain": "Exercise 1.2: right in all 5 cases."}]


def test_what_was_solved_once_stays_solved(in_process, ledger):
    check("1.2", lambda p, c: p // c + 1)
    check("1.2", lambda p, c: 0)
    assert {key: entry(ledger)[key] for key in ("solved", "right", "total", "tries")} == {
        "solved": True, "right": 5, "total": 5, "tries": 2
    }  # fmt: skip


def test_an_odd_or_damaged_ledger_does_not_stop_a_check(in_process, ledger):
    ledger.write_text(json.dumps({"exercises": {"1.2": {"tries": "many", "solved": "yes"}}}))
    assert check("1.2", lambda p, c: p // c + 1).solved and entry(ledger)["tries"] == 1
    ledger.write_text("{")
    with pytest.warns(UserWarning, match="a new ledger begins"):
        assert check("1.2", lambda p, c: p // c + 1).solved


def test_other_parameters_than_asked_for_are_explained_without_a_run(monkeypatch):
    monkeypatch.setitem(check.__globals__, "run_bounded", None)
    said = "it takes 1 argument (p), and it is called with 2 arguments (params_n_bytes, cut_n_bytes_per_example)."
    score = check("1.2", lambda p: p)
    assert (score.right, score.total, score.wrong) == (0, 5, said)


def test_what_is_no_function_or_no_exercise_is_refused():
    with pytest.raises(TypeError, match="answer: expected a function, got int. Pass the function itself, uncalled"):
        check("1.2", 162)
    with pytest.raises(ValueError, match=r"exercise: expected one of 1.1, 1.2, 1.3, 2.1, .*, got '1.9'"):
        check("1.9", right)
    for name in ("", "x", "9.9", "99.1", "1", "¹.1"):
        with pytest.raises(ValueError, match="exercise: expected one of"):
            find_exercise(name)
    with pytest.raises(TypeError, match=r"exercise: expected str, got 1.2 \(float\). Write the name as a text"):
        check(1.2, right)


def test_an_exercise_of_ones_own(in_process):
    own = Exercise(
        name="mine.1",
        title="Twice",
        solution=lambda x: 2 * x,
        cases=lambda: {"3": (3,), "4": (4,)},
        mistakes=(),
        think="Add.",
    )
    assert check(own, lambda x: x + x).solved
