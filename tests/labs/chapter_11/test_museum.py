import pytest

pytest.importorskip("ipywidgets")
pytest.importorskip("plotly")
pytest.importorskip("anywidget")

from d2lite.exercises import EXHIBITS  # noqa: E402
from d2lite.labs.chapter_11.bug_exhibit import DRIFT, SHORT, SIGNS, SIZES  # noqa: E402
from d2lite.labs.chapter_11.museum import ASK, RIGHT_CODE, Museum  # noqa: E402
from d2lite.widgets.live_figure import close_all  # noqa: E402


@pytest.fixture
def museum():
    """A museum of one epoch, its widgets closed afterwards."""
    museum = Museum(EXHIBITS, num_epochs=1)
    yield museum
    close_all(museum.view)


def test_the_figure_shows_what_was_measured_of_both_runs(museum):
    museum.exhibit.value = "rebinding all-reduce"
    museum.symptom.value = DRIFT
    assert list(museum.histories) == [RIGHT_CODE, "rebinding all-reduce"]
    drawn = [list(trace.y) for trace in museum.figure.data]
    right, own = museum.histories.values()
    assert drawn == [right.losses, right.accuracies, right.drifts, own.losses, own.accuracies, own.drifts]
    assert right.drifts == [0.0] * 4 and own.drifts[-1] > 0
    titles = [note.text for note in museum.figure.layout.annotations][:3]
    assert titles == ["test loss", "test accuracy", "replica drift"]
    assert museum.figure.layout.yaxis3.range[1] >= own.drifts[-1]
    assert EXHIBITS["rebinding all-reduce"].fix in museum.summary.value and "1.00 times" in museum.summary.value


def test_the_length_of_the_first_step_is_told(museum):
    museum.exhibit.value, museum.symptom.value = "mean for sum", SHORT
    assert "0.50 times as long" in museum.summary.value
    museum.k.value = 4
    assert "0.25 times as long" in museum.summary.value and "4 replicas" in museum.summary.value


def test_right_code_alone_is_drawn_once_and_a_run_is_kept(museum):
    museum.exhibit.value = RIGHT_CODE
    assert [len(trace.y) for trace in museum.figure.data] == [4, 4, 4, 0, 0, 0]
    before = museum.histories[RIGHT_CODE]
    museum.lr.value = 0.02
    assert museum.histories[RIGHT_CODE] is not before
    museum.lr.value = 0.05
    assert museum.histories[RIGHT_CODE] is before


def test_it_is_told_in_words(museum):
    assert "replicas" in repr(museum) and "symptom" in repr(museum) and "wrong: " in repr(museum)
    assert "<img" in museum._draw_static() and "wrong: " in museum._draw_static()


def test_curves_and_fix_are_shown_after_a_symptom_is_chosen(museum):
    museum.exhibit.value = "rebinding all-reduce"
    exhibit = EXHIBITS["rebinding all-reduce"]
    assert museum.symptom.value == ASK and sorted(museum.symptom.options) == sorted((ASK, *SIGNS))
    assert [len(trace.y) for trace in museum.figure.data] == [4, 4, 4, 0, 0, 0]
    assert "wrong: " in museum.code.value and exhibit.fix not in museum.summary.value
    assert museum.histories["rebinding all-reduce"].drifts[-1] > 0  # measured, and not shown
    museum.symptom.value = SHORT
    assert f"You expected: {SHORT}. No: {DRIFT}." in museum.summary.value and exhibit.fix in museum.summary.value
    assert [len(trace.y) for trace in museum.figure.data] == [4] * 6
    museum.symptom.value = DRIFT
    assert f"You expected: {DRIFT}. Right.<br>" in museum.summary.value
    museum.exhibit.value, museum.symptom.value = "chunk loses a device", DRIFT
    assert f"Right, and also: {SIZES}." in museum.summary.value


def test_each_exhibit_keeps_its_own_answer(museum):
    museum.exhibit.value, museum.symptom.value = "mean for sum", SHORT
    museum.exhibit.value = "no all-reduce"
    assert museum.symptom.value == ASK and not museum.is_revealed
    museum.exhibit.value = "mean for sum"
    assert museum.symptom.value == SHORT and museum.is_revealed and museum.guesses == {"mean for sum": SHORT}
    museum.exhibit.value = RIGHT_CODE
    assert museum.symptom.disabled and museum.is_revealed and museum.guesses == {"mean for sum": SHORT}


@pytest.mark.slow
def test_on_four_devices_every_exhibit_differs_from_right_code_within_an_epoch():
    museum = Museum(EXHIBITS, k=4, num_epochs=1)
    for name, exhibit in EXHIBITS.items():
        museum.exhibit.value = name
        right, own = museum.histories.values()
        apart = max(abs(a / b - 1) for a, b in zip(own.moved, right.moved, strict=True))
        assert apart > 1e-3 or max(own.drifts) > 1e-3, name
        assert (max(own.drifts) > 1e-3) == (DRIFT in exhibit.signs), name
    close_all(museum.view)


def test_the_right_code_of_an_exhibit_with_noise_has_noise(museum):
    museum.exhibit.value = RIGHT_CODE
    plain = museum.histories[RIGHT_CODE]
    museum.exhibit.value = "same random numbers on each replica"
    assert museum.histories[RIGHT_CODE].losses != plain.losses
    museum.exhibit.value = "no all-reduce"
    assert museum.histories[RIGHT_CODE] is plain


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="exhibits: expected at least one, got none"):
        Museum({})
    with pytest.raises(ValueError, match="k: expected a whole number from 2 to 4"):
        Museum(EXHIBITS, k=1)
    with pytest.raises(ValueError, match="lr: expected one of 0.01"):
        Museum(EXHIBITS, lr=3.0)
    with pytest.raises(ValueError, match="num_epochs: expected a positive whole number"):
        Museum(EXHIBITS, num_epochs=0)
