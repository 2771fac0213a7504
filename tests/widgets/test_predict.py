"""Predict: an answer is locked, kept, and shown next to what was measured; it never stops a lesson."""

import doctest
import json
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

from d2lite import Predict
from d2lite.learner_ledger import read_ledger
from d2lite.widgets import predict as module
from d2lite.widgets.live_figure import close_all
from d2lite.widgets.predict import typed_number

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(autouse=True)
def ledger(tmp_path, monkeypatch):
    """A ledger of this test's own."""
    path = tmp_path / "ledger.json"
    monkeypatch.setenv("D2LITE_LEDGER", str(path))
    return path


@pytest.fixture
def shown():
    """Return view(predict): what a notebook shows of it; it is closed after the test."""
    views = []

    def view(predict):
        predict._repr_mimebundle_()
        views.append(predict._view)
        return predict._view

    yield view
    for each in views:
        close_all(each.widget)


def entry(key):
    return read_ledger()["predictions"][key]


def speed_up(**more):
    return Predict("How many times as fast?", unit="×", key="2.3", kind="speed-up", **more)


def test_an_answer_is_locked_and_kept():
    predict = speed_up()
    predict.commit("1.9×")
    assert predict.answer == 1.9 and not predict.is_open
    with pytest.raises(ValueError, match=r"has one, 1.9. Call again\(\)"):
        predict.commit(1.5)
    kept = entry("2.3")
    assert kept["answers"] == [1.9] and kept["question"] == "How many times as fast?" and kept["kind"] == "speed-up"


def test_running_the_cell_again_finds_it_locked():
    speed_up().commit(1.9)
    predict = speed_up()
    assert predict.answer == 1.9 and not predict.is_open


def test_predict_again_keeps_the_first_answer():
    speed_up().commit(1.9)
    predict = speed_up()
    predict.again()
    predict.commit(1.5)
    predict.reveal(1.5)
    assert entry("2.3")["answers"] == [1.9, 1.5] and predict.prediction.first == 1.9
    assert speed_up().answer == 1.5


def test_choices():
    predict = Predict("Is it the same?", choices=["yes", "no"], key="3.1")
    with pytest.raises(ValueError, match="expected one of 'yes', 'no', got 'perhaps'"):
        predict.commit("perhaps")
    with pytest.raises(ValueError, match="expected one of 'yes', 'no', got 1"):
        predict.commit(1)
    predict.commit("no")
    predict.reveal("yes")
    assert predict.prediction.is_right is False and entry("3.1")["measured"] == "yes"
    predict.reveal("maybe")  # a lesson that was changed may find what nobody expected
    assert predict.prediction.is_right is False
    with pytest.raises(TypeError, match="value: expected a text"):
        predict.reveal(True)


def test_reveal_shows_both_sides_with_the_devices(capsys):
    predict = speed_up()
    predict.commit("1,9")
    predict.reveal(1.6, on=[torch.device("cpu")])
    assert capsys.readouterr().out == (
        "How many times as fast? predicted 1.9×, measured 1.6× (1 replica on 1 CPU core): 19% too high.\n"
    )


def test_without_an_answer_reveal_does_not_wait(capsys):
    speed_up().reveal(1.6, on="here", how="counted")
    assert capsys.readouterr().out == "How many times as fast? no answer, counted 1.6× (here).\n"
    assert entry("2.3")["answers"] == [] and entry("2.3")["measured"] == 1.6


def test_a_quiet_reveal_shows_it_in_the_widget_alone(shown, capsys, monkeypatch):
    predict = speed_up()
    view = shown(predict)
    predict.commit(2)
    monkeypatch.setattr(module, "notebook_shell", lambda: "a kernel")
    predict.reveal(1.6, quiet=True)
    assert not capsys.readouterr().out and "1.6×" in view.result.value and entry("2.3")["measured"] == 1.6
    monkeypatch.setattr(module, "notebook_shell", lambda: None)  # no notebook, so no widget to show it
    predict.reveal(1.6, quiet=True)
    assert "1.6×" in capsys.readouterr().out


def test_an_answer_after_the_measurement_does_not_count():
    predict = speed_up()
    predict.reveal(1.6)
    predict.commit(1.6)
    assert predict.prediction.is_late and predict.prediction.is_right is None
    speed_up().reveal(1.7)  # later runs leave it so
    assert entry("2.3")["is_late"] is True and entry("2.3")["answers"] == [1.6]


BUSY = "Other programs, this page included, used 1.9 of 2 CPU cores: the seconds are too long."


def test_a_measurement_that_other_programs_disturbed_does_not_count(capsys):
    predict = speed_up()
    predict.commit(1.6)
    predict.reveal(1.6, disturbance=BUSY)
    assert predict.prediction.is_right is None and predict.prediction.pair is None
    assert capsys.readouterr().out == (f"How many times as fast? predicted 1.6×, measured 1.6×: not counted. {BUSY}\n")
    assert speed_up().prediction.disturbance == entry("2.3")["disturbance"] == BUSY
    predict.reveal(1.7)  # measured again, on a quiet machine
    assert predict.prediction.is_right and entry("2.3")["disturbance"] == ""


def test_the_widget_says_what_disturbed_the_measurement(shown):
    predict = speed_up()
    view = shown(predict)
    predict.commit(3)
    predict.reveal(1.6, disturbance=BUSY + HOSTILE)
    assert "not counted" in view.result.value and BUSY in view.result.value and HOSTILE not in view.result.value


def test_what_an_earlier_run_measured_is_not_shown_before_the_answer():
    speed_up().reveal(1.6)
    predict = speed_up()
    assert predict.is_open and predict.prediction.measured is None
    predict.commit(1.5)
    assert not predict.prediction.is_late
    predict.reveal(1.6)
    assert predict.prediction.is_right


@pytest.mark.parametrize("value", [1.5, np.float32(1.5), torch.tensor(1.5), torch.tensor([1.5]), 3 / 2])
def test_any_number_can_be_measured(value):
    predict = speed_up()
    predict.reveal(value)
    assert predict.prediction.measured == 1.5


@pytest.mark.parametrize("value", [None, "1.5", b"1", torch.ones(2), 10**400, object()])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(TypeError, match="value: expected a number"):
        speed_up().reveal(value)
    with pytest.raises((TypeError, ValueError), match="expected"):
        Predict("?", choices=["a", "b"]).commit(value)


def test_a_measurement_that_failed_is_shown_and_not_compared(capsys):
    predict = speed_up()
    predict.commit(2)
    predict.reveal(float("nan"))
    assert "predicted 2×, measured nan." in capsys.readouterr().out and predict.prediction.is_right is None
    with pytest.raises(ValueError, match="expected a finite number, got inf"):
        Predict("?").commit(float("inf"))


@pytest.mark.parametrize(
    "arguments, error",
    [
        ({"question": 1}, TypeError),
        ({"question": "?", "choices": "yes"}, TypeError),
        ({"question": "?", "choices": [1, 2]}, TypeError),
        ({"question": "?", "choices": ["yes"]}, ValueError),
        ({"question": "?", "choices": ["yes", "yes"]}, ValueError),
        ({"question": "?", "choices": ["yes", "n" * 201]}, ValueError),
        ({"question": "?", "choices": ["yes", "no"], "unit": "s"}, TypeError),
        ({"question": "?", "within": -1}, ValueError),
        ({"question": "?", "key": 2.3}, TypeError),
    ],
)
def test_a_question_that_cannot_be_asked(arguments, error):
    with pytest.raises(error, match="expected"):
        Predict(**arguments)


@pytest.mark.parametrize(
    "text, unit, number",
    [
        ("1.9", "s", 1.9),
        (" 1,9 ", "s", 1.9),
        ("1.9 s", "s", 1.9),
        ("1.9s", "s", 1.9),
        ("1.9 Seconds.", "s", 1.9),
        ("2x", "×", 2.0),
        ("2 times", "×", 2.0),
        ("~ 80 %", "%", 80.0),
        ("80 percent", "%", 80.0),
        ("3 mb", "MB", 3.0),
        ("1 iteration", "iterations", 1.0),
        ("47", "", 47.0),
        ("1e-3", "", 0.001),
        ("\u22122", "", -2.0),
        (".5", "", 0.5),
        (",5", "", 0.5),
        ("0,125", "", 0.125),
        ("12_000", "", 12_000.0),
        ("12 000", "", 12_000.0),
        ("1,234,567", "", 1_234_567.0),
        ("1,234.5", "", 1_234.5),
        ("1.234,5", "", 1_234.5),
        ("1.234.567", "", 1_234_567.0),
        ("12.000", "", 12.0),
    ],
)
def test_what_learners_type(text, unit, number):
    assert typed_number(text, unit) == number


@pytest.mark.parametrize(
    "text, unit, message",
    [
        ("", "s", "expected a number, for example 1.9 or 1.9 s, got nothing"),
        ("two", "", "expected a number, for example 1.9, got 'two'"),
        ("1/2", "", "a number without a unit, got '1/2'"),
        ("1900 ms", "s", "expected a number in s, got '1900 ms'"),
        ("12,000", "", "can be read in two ways: write 12000 or 12.000"),
        ("1,2,3", "", "expected a number"),
        ("1e999", "", "too large"),
        ("nan", "", "expected a number"),
        (".", "", "expected a number"),
        ("9" * 10**6, "", "expected a number"),
        (HOSTILE, "s", "expected a number"),
    ],
)
def test_what_is_no_number_gets_a_clear_message(text, unit, message):
    with pytest.raises(ValueError, match=message) as caught:
        typed_number(text, unit)
    assert len(str(caught.value)) < 200


def test_the_widget_of_a_number(shown):
    predict = speed_up()
    view = shown(predict)
    assert view.button.description == "Commit" and view.inputs.layout.display == "flex"
    assert not view.inputs.continuous_update  # half of a number is never sent
    view.inputs.value = "two"
    view.button.click()
    assert predict.is_open and "Expected a number" in view.message.value
    view.inputs.value = "1.9 x"
    view.button.click()
    assert predict.answer == 1.9 and view.inputs.disabled and view.inputs.layout.display == "none"
    assert "1.9×" in view.result.value and "not yet" in view.result.value and not view.message.value
    predict.reveal(1.6, on="2 replicas on 2 CPU cores")
    assert "1.6×" in view.result.value and "2 replicas on 2 CPU cores" in view.result.value


def test_the_widget_of_choices(shown):
    predict = Predict("Same?", choices=["yes", "no"])
    view = shown(predict)
    assert view.inputs.index is None
    view.button.click()
    assert predict.is_open and "Choose one" in view.message.value
    view.inputs.value = "no"
    view.button.click()
    assert predict.answer == "no"


def join_timers(before):
    """Wait for the timers that were started since; a test before may have left a long one."""
    for timer in {t for t in threading.enumerate() if isinstance(t, threading.Timer)} - before:
        timer.join(10)


def test_enter_commits_the_text_that_comes_after_it(shown):
    """A page sends Enter before the text."""
    before = set(threading.enumerate())
    predict = speed_up()
    view = shown(predict)
    view.inputs.value = "1"
    view.inputs._handle_custom_msg({"event": "submit"}, [])
    view.inputs.value = "1.9"
    join_timers(before)
    assert predict.answer == 1.9


def test_enter_commits_a_text_that_comes_late(shown):
    """A slow page sends it when the earlier text was found to be no number already."""
    before = set(threading.enumerate())
    predict = speed_up()
    view = shown(predict)
    view.inputs.value = "two"
    view._on_click()
    view.inputs._handle_custom_msg({"event": "submit"}, [])
    join_timers(before)
    assert predict.is_open and "Expected a number" in view.message.value
    view.inputs.value = "1.9"
    assert predict.answer == 1.9


def test_a_text_without_enter_is_not_committed(shown):
    predict = speed_up()
    view = shown(predict)
    view.inputs.value = "1.9"
    view._entered_at -= 10
    view.inputs.value = "1.8"
    assert predict.is_open


def test_a_double_click_does_not_open_it_again(shown):
    predict = speed_up()
    view = shown(predict)
    view.inputs.value = "2"
    view.button.click()
    view.button.click()
    assert not predict.is_open
    view._locked_at -= 10
    view.button.click()
    assert predict.is_open and view.button.description == "Commit" and "first answer" in view.message.value


def test_a_view_that_opens_later_shows_the_state(shown):
    speed_up().commit(1.9)
    again = speed_up()
    again.reveal(1.6)
    view = shown(again)
    assert "1.6×" in view.result.value and view.inputs.disabled and view.button.description == "Predict again"


def test_room_is_kept_while_the_learner_answers_and_given_back_when_it_is_measured(shown):
    predict = Predict("Which?", choices=["a", "b", "c", "d"], key="9.1")
    view = shown(predict)
    answer = next(box for box in view.widget.children if view.result in getattr(box, "children", ()))
    heights = [answer.layout.min_height]
    predict.commit("a")
    heights.append(answer.layout.min_height)
    predict.reveal("b")
    assert heights == ["104px", "104px"] and answer.layout.min_height == "0"
    assert "</span> wrong</div>" in view.result.value


def test_nothing_a_learner_types_is_markup(shown):
    predict = Predict(f"{HOSTILE}?", choices=[HOSTILE, "no"], key=HOSTILE)
    view, unanswered = shown(predict), predict._draw_static()
    view.inputs.value = HOSTILE
    view.button.click()
    predict.reveal(HOSTILE, on=HOSTILE, how=HOSTILE)
    number = shown(Predict("?", unit="s"))
    number.inputs.value = HOSTILE
    number.button.click()
    question = next(
        child.value for child in view.widget.children if 'class="d2lite-question' in getattr(child, "value", "")
    )
    for html in (question, unanswered, predict._draw_static(), view.result.value, number.message.value):
        assert "<img" not in html and "&lt;img" in html


def test_answers_of_another_edition_of_the_question_are_not_shown():
    Predict("?", choices=["yes", "no"], key="1.1").commit("no")
    assert Predict("?", choices=["a", "b"], key="1.1").is_open
    assert Predict("?", unit="s", key="1.1").is_open


def test_a_damaged_ledger_stops_nothing(ledger):
    ledger.write_text("{")
    predict = speed_up()
    with pytest.warns(UserWarning, match="a new ledger begins"):
        predict.commit(1.9)
    assert speed_up().answer == 1.9
    for answers in ("x", [None], [[1]], [True]):
        ledger.write_text(json.dumps({"predictions": {"2.3": {"answers": answers, "measured": []}}}))
        assert speed_up().is_open


def test_it_works_without_a_ledger(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("D2LITE_LEDGER", "off")
    monkeypatch.chdir(tmp_path)
    predict = speed_up()
    predict.commit(2)
    predict.reveal(2.0)
    assert "right" in capsys.readouterr().out and not list(tmp_path.iterdir())


def test_a_notebook_that_was_open_before_adds_to_the_answers_of_a_different_one():
    first, second = speed_up(), speed_up()  # both are open
    first.commit(1.9)
    first.reveal(1.6, on="2 replicas on 2 CPU cores")
    second.commit(3)
    kept = entry("2.3")
    assert kept["answers"] == [1.9, 3.0] and kept["measured"] == 1.6 and kept["on"] == "2 replicas on 2 CPU cores"
    assert second.prediction.first == 1.9 and second.answer == 3.0
    first.again()
    first.commit(1.7)
    second.reveal(1.5)
    assert entry("2.3")["answers"] == [1.9, 3.0, 1.7] == list(second.prediction.answers)
    assert entry("2.3")["measured"] == 1.5


def test_an_answer_that_could_not_be_written_is_written_later(ledger):
    ledger.mkdir()  # a folder in the ledger's place
    predict = speed_up()
    with pytest.warns(UserWarning, match="The ledger was not written"):
        predict.commit(1.9)
    ledger.rmdir()
    speed_up().commit(2)
    predict.reveal(1.6)
    assert entry("2.3")["answers"] == [2.0, 1.9] and entry("2.3")["measured"] == 1.6


def test_a_ledger_that_was_removed_gets_all_answers_again(ledger):
    predict = speed_up()
    predict.commit(1.9)
    ledger.unlink()
    predict.reveal(1.6)
    assert entry("2.3")["answers"] == [1.9]


NOTEBOOK = """
import sys
from d2lite import Predict
predict = Predict("How many?", key="2.3")
print("open", flush=True)
sys.stdin.readline()  # until the other one is open as well
for i in range(15):
    predict.commit(int(sys.argv[1]) + i)
    predict.again()
"""


@pytest.mark.slow
def test_two_processes_with_the_same_question_lose_no_answer(ledger):
    notebooks = [
        subprocess.Popen(
            [sys.executable, "-c", NOTEBOOK, start], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for start in ("0", "100")
    ]
    try:
        for notebook in notebooks:
            assert notebook.stdout.readline() == "open\n"
        for notebook in notebooks:
            notebook.stdin.write("\n")
            notebook.stdin.flush()
        for notebook in notebooks:
            assert notebook.communicate(timeout=60) and notebook.returncode == 0
    finally:
        for notebook in notebooks:
            notebook.kill()
            notebook.wait()
    answers = entry("2.3")["answers"]
    for first in (0, 100):  # each in its order, both mixed
        assert [answer for answer in answers if first <= answer < first + 100] == [first + i for i in range(15)]


PLAIN = """
import builtins, sys
real = builtins.__import__
def without(name, *rest, **more):
    if name.split(".")[0] in ("ipywidgets", "plotly", "anywidget", "IPython", "matplotlib"):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return real(name, *rest, **more)
builtins.__import__ = without
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "ipywidgets" else found(name, *rest)
from d2lite import Predict
predict = Predict("Same?", choices=["yes", "no"], key="1.1")
print(predict)
print(predict._repr_mimebundle_())
predict.reveal("no")
predict.commit("no")
print(repr(predict))
"""


@pytest.mark.slow
def test_plain_python_without_widgets_prints_text():
    out = subprocess.run([sys.executable, "-c", PLAIN], capture_output=True, text=True, timeout=60)
    assert out.returncode == 0, out.stderr
    asked = "Same? Answer with commit(...): 'yes', 'no'."
    assert out.stdout.splitlines() == [
        asked,
        str({"text/plain": asked}),
        "Same? no answer, measured no.",
        "Same? predicted no, measured no: right.",
    ]


def test_the_example_runs(ledger):
    tests = doctest.DocTestFinder(recurse=False).find(Predict, "Predict", globs={})
    assert sum(len(test.examples) for test in tests) == 4
    assert doctest.DocTestRunner().run(tests[0]).failed == 0
    assert module.__all__ == ["Predict", "typed_number"]
