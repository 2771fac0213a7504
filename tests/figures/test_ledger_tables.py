"""The ledger in words and tables: how often right, how far off, in which direction; nothing in it is trusted."""

import doctest
import json
import re
import sys

import pytest

from d2lite.figures import bias, exercises_html, ledger_html, predictions_html, predictions_of, predictions_summary
from d2lite.figures.learner_prediction import Prediction, prediction_html
from d2lite.learner_ledger import read_ledger


def speed_ups(*pairs, **more):
    entry = {"question": "?", "unit": "×", "kind": "speed-up", **more}
    return predictions_of({f"1.{i}": {**entry, "answers": [a], "measured": m} for i, (a, m) in enumerate(pairs)})


def words(html):
    return re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", html))


def test_the_sentence_of_the_bias():
    found = speed_ups((1.9, 1.5), (2.0, 1.6), (1.8, 1.4), (1.2, 1.3), (2.0, 1.9))
    assert bias(found) == ["You overrate the second device: 2 predicted, 1.6 measured, too high in four of five."]
    assert bias(speed_ups((1.0, 1.5), (1.1, 1.6), (2.0, 1.9))) == [
        "You underrate the second device: 1.1 predicted, 1.6 measured, too low in two of three."
    ]
    assert bias(speed_ups((1.5, 1.5), (1.6, 1.6), (2.0, 1.0))) == [
        "You judge the second device without a bias: 1.6 predicted, 1.6 measured."
    ]


def test_the_numbers_in_the_sentence_are_those_of_one_case_in_its_direction():
    """The median prediction and the median measurement could contradict the median of their ratios."""
    found = speed_ups((10.0, 9.0), (1.1, 1.0), (2.0, 8.0), (1.0, 20.0), (9.0, 7.0))
    assert bias(found) == ["You overrate the second device: 1.1 predicted, 1 measured, too high in three of five."]
    assert "2 predicted, 1 measured, too high in two of four" in bias(speed_ups((2, 1), (3, 1), (1, 1), (1, 2)))[0]
    assert "1 predicted, 2 measured, too low in two of four" in bias(speed_ups((1, 2), (1, 3), (1, 1), (2, 1)))[0]


@pytest.mark.parametrize("n", range(3))
def test_fewer_than_three_say_nothing(n):
    assert bias(speed_ups(*[(1.9, 1.5)] * n)) == []


def test_only_comparable_first_answers_count():
    late = speed_ups(*[(1.9, 1.5)] * 3, is_late=True)
    assert bias(late) == [] and predictions_summary(late).startswith("No prediction")
    again = Prediction(key="1", question="?", kind="speed-up", answers=(1.9, 1.5), measured=1.5)
    assert len(bias([again] * 3)) == 1 and again.is_right is False and again.fits(1.5)
    other = [
        Prediction(key="1", question="?", answers=("yes",), measured="no"),
        Prediction(key="2", question="?", answers=(2.0,)),
    ]
    assert bias([*other, *speed_ups((0.0, 1.5), (1.9, 0.0), (-1.0, 1.0))]) == []


def test_a_disturbed_measurement_is_in_the_table_and_counts_for_nothing():
    found = speed_ups(*[(1.9, 1.5)] * 3, disturbance="Other programs used 1.9 of 2 CPU cores.")
    assert bias(found) == [] and predictions_summary(found).startswith("No prediction")
    assert predictions_html(found).count("not counted") == 3 and "nearly" not in predictions_html(found)
    assert speed_ups((1.9, 1.5), disturbance=7)[0].pair == (1.9, 1.5)  # no text: an edited ledger


def test_kinds_are_kept_apart():
    one, two = speed_ups(*[(2, 1)] * 3), speed_ups(*[(1, 2)] * 3, kind="the wait")
    assert bias([*one, *two]) == [
        "You overrate the second device: 2 predicted, 1 measured, too high in three of three.",
        "You underrate the wait: 1 predicted, 2 measured, too low in three of three.",
    ]
    assert bias(speed_ups(*[(2, 1)] * 13, kind="MB"))[0].startswith("You overrate MB:")
    assert "13 of 13" in bias(speed_ups(*[(2, 1)] * 13))[0]


def test_how_often_right_and_how_far_off():
    found = [
        *speed_ups((1.0, 1.0), (1.05, 1.0), (2.0, 1.0)),
        Prediction(key="9", question="?", answers=("a",), measured="a"),
    ]
    assert predictions_summary(found) == "3 of 4 predictions were right. The numbers were off by 5% in the median."
    assert predictions_summary(found[1:3]) == "1 of 2 predictions were right. The numbers were off by 5% and 100%."
    assert predictions_summary(found[2:3]) == "0 of 1 prediction was right. The numbers were off by 100%."
    assert predictions_summary([]) == "No prediction has been compared with a measurement yet."


@pytest.mark.parametrize(
    "answer, measured, verdict",
    [
        (1.5, 1.5, "right"),
        (1.6, 1.5, "right, within 10%"),
        (1.8, 1.5, "20% too high"),
        (1.2, 1.5, "20% too low"),
        (3.0, 1.0, "3 times too high"),
        (1.0, 4.0, "4 times too low"),
        (1.0, 0.0, "off by 1 s"),
        ("a", "a", "right"),
        ("a", "b", "wrong"),
        ("a", 1.0, ""),
    ],
)
def test_verdicts(answer, measured, verdict):
    assert Prediction(key="1", question="?", unit="s", answers=(answer,), measured=measured).verdict(answer) == verdict


def test_exact_answers_need_no_tolerance():
    exact = Prediction(key="1", question="?", answers=(46.0,), measured=47.0, within=0.0)
    assert exact.is_right is False and exact.fits(47.0)
    assert exact.verdict(46.0) == "1 too low" and exact.verdict(50.0) == "3 too high"  # what is counted has no percent


@pytest.mark.parametrize(
    "answer, measured, within, state",
    [
        (1.6, 1.5, 0.1, "right"),
        (1.8, 1.5, 0.1, "nearly"),
        (1.9, 1.5, 0.1, "wrong"),
        (46.0, 47.0, 0.0, "wrong"),
        (4.0, 2.0, 0.5, "wrong"),  # a wide tolerance does not make twice the number nearly right
        ("a", "a", 0.1, "right"),
        ("a", "b", 0.1, "wrong"),
        ("a", None, 0.1, "locked"),
        ("a", 1.0, 0.1, "locked"),
        (None, 1.0, 0.1, "not attempted"),
    ],
)
def test_the_card_has_the_state_of_the_answer(answer, measured, within, state):
    answers = () if answer is None else (answer,)
    prediction = Prediction(key="1", question="?", answers=answers, measured=measured, within=within)
    assert prediction.state(answer) == state and f"</span> {state}</div>" in prediction_html(prediction)


def test_one_of_a_unit_is_singular():
    shown = {unit: Prediction(key="1", question="?", unit=unit).shown(1.0) for unit in ("steps", "s", "ms", "MB", "×")}
    assert shown == {"steps": "1 step", "s": "1 s", "ms": "1 ms", "MB": "1 MB", "×": "1×"}
    assert Prediction(key="1", question="?", unit="steps").shown(2.0) == "2 steps"


def test_one_prediction_shows_both_sides_and_the_devices():
    asked = Prediction(key="2.3", question="How fast?", unit="×")
    assert str(asked) == "How fast? no answer yet, not measured yet."
    before = Prediction(key="2.3", question="How fast?", unit="×", answers=(1.9,))
    assert "not measured yet" in str(before) and "not yet" in words(prediction_html(before))
    after = Prediction(
        key="2.3", question="How fast?", unit="×", answers=(1.9,), measured=1.62, on="2 replicas on 2 CPU cores"
    )
    assert str(after) == "How fast? predicted 1.9×, measured 1.62× (2 replicas on 2 CPU cores): 17% too high."
    shown = words(prediction_html(after))
    assert "How fast?" in shown and "measured (2 replicas on 2 CPU cores) 1.62×" in shown and "17% too high" in shown
    assert "How fast?" not in prediction_html(after, with_question=False)
    silent = Prediction(key="2.3", question="How fast?", unit="×", measured=1.62)
    assert "no answer" in words(prediction_html(silent)) and str(silent).startswith("How fast? no answer, measured")
    twice = Prediction(key="1", question="?", answers=(3.0, 1.0), measured=1.0, is_late=True)
    assert "first 3" in words(prediction_html(twice)) and "given after the measurement" in prediction_html(twice)


def test_the_table_is_in_the_order_of_the_chapters():
    entries = {key: {"question": f"q{key}", "answers": [1]} for key in ("10.1", "2.10", "2.9", "mine", "2.a")}
    assert [p.key for p in predictions_of(entries)] == ["2.9", "2.10", "2.a", "10.1", "mine"]
    html = predictions_html(predictions_of(entries))
    assert html.count("<tr>") == 6 and 'scope="row"' in html
    assert "No prediction yet" in predictions_html([])


def test_the_table_says_what_counts():
    html = predictions_html(speed_ups((1.9, 1.5), (1.9, 1.5), (1.9, 1.5), (1.0, 1.0)))
    assert "You overrate the second device" in html and "1 of 4 predictions were right" in html
    assert "not counted" in predictions_html(speed_ups((1.9, 1.5), is_late=True))
    assert "1.5× (2 replicas share 1 GPU)" in predictions_html(speed_ups((1.9, 1.5), on="2 replicas share 1 GPU"))


def test_exercises_tried_and_not_tried():
    entries = {
        "1.1": {"solved": True, "right": 5, "total": 5},
        "1.2": {"solved": False, "right": 2, "total": 5},
        "9.9": {"solved": "yes"},
    }
    shown = words(exercises_html(entries, {"1.1": "epochs", "1.2": "bytes", "4.2": "tree"}))
    assert "1 of 4 exercises solved." in shown and "1.2 bytes 2 of 5 cases right" in shown
    assert "4.2 tree not tried yet" in shown and "9.9 tried" in shown


HOSTILE = "<img src=x onerror=alert(1)>\"'&"


def test_nothing_in_a_ledger_is_markup():
    entry = dict.fromkeys(("question", "unit", "kind", "how", "on"), HOSTILE)
    found = predictions_of(
        {HOSTILE: {**entry, "answers": [HOSTILE, HOSTILE], "measured": HOSTILE}}
        | {f"{HOSTILE}{i}": {**entry, "answers": [2], "measured": 1} for i in range(3)}
    )
    pages = [predictions_html(found), exercises_html({HOSTILE: {}}, {HOSTILE: HOSTILE}), *map(prediction_html, found)]
    for page in pages:
        assert "<img" not in page and "&lt;img" in page


@pytest.mark.parametrize(
    "entry",
    [
        {},
        dict.fromkeys(("question", "unit", "kind", "answers", "measured", "how", "on", "within", "is_late"), 7),
        dict.fromkeys(("question", "unit", "kind", "answers", "measured", "how", "on", "within", "is_late"), [None]),
        {"answers": [True, None, {}, [1], 10**400, float("nan"), float("inf")], "measured": 10**400, "within": -1},
        {"question": "x" * 10**6, "answers": ["y" * 10**6], "measured": "\x1b[2J\u202e"},
    ],
    ids=["empty", "numbers", "lists", "no numbers", "long"],
)
def test_a_damaged_entry_is_shown_as_far_as_it_goes(entry):
    found = predictions_of({"1.1": entry})
    assert len(predictions_html(found)) < 5_000 and "\x1b" not in str(found[0])
    assert bias(found * 3) == [] and prediction_html(found[0])
    exercises_html({"1.1": entry}, {})


def test_it_reads_what_the_ledger_keeps(tmp_path):
    path = tmp_path / "ledger.json"
    path.write_text(json.dumps({"predictions": {"1.1": {"question": "?", "answers": [2], "measured": 2.1}}}))
    (found,) = predictions_of(read_ledger(path)["predictions"])
    assert found.is_right and found.answers == (2.0,)


def test_the_ledger_as_a_whole():
    assert "No prediction yet" in ledger_html({}) and "exercises solved" not in ledger_html({})
    both = {"predictions": {"1.1": {"question": "how many", "answers": [2]}}, "exercises": {"1.1": {"solved": True}}}
    html = ledger_html(both, {"1.1": "epochs", "1.2": "bytes"})
    assert "how many" in html and "1 of 2 exercises solved." in html


def test_the_example_runs():
    assert doctest.testmod(sys.modules[bias.__module__]).failed == 0 and "Example" in bias.__doc__
