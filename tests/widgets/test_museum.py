import pytest

pytest.importorskip("ipywidgets")
pytest.importorskip("plotly")
pytest.importorskip("anywidget")

from d2lite.exercises import EXHIBITS  # noqa: E402
from d2lite.widgets.live import close_all  # noqa: E402
from d2lite.widgets.museum import RIGHT, Museum  # noqa: E402


@pytest.fixture
def museum():
    """A museum of one epoch, its widgets closed afterwards."""
    museum = Museum(EXHIBITS, num_epochs=1)
    yield museum
    close_all(museum.view)


def test_the_figure_shows_what_was_measured_of_both_runs(museum):
    museum.exhibit.value = "rebinding all-reduce"
    assert list(museum.histories) == [RIGHT, "rebinding all-reduce"]
    drawn = [list(trace.y) for trace in museum.figure.data]
    right, own = museum.histories.values()
    assert drawn == [right.losses, right.accuracies, right.drifts, own.losses, own.accuracies, own.drifts]
    assert right.drifts == [0.0] * 4 and own.drifts[-1] > 0
    titles = [axis.title.text for axis in museum.figure.select_xaxes()]
    assert titles == ["test loss, by step", "test accuracy, by step", "replica drift, by step"]
    assert museum.figure.layout.yaxis3.range[1] >= own.drifts[-1]
    assert EXHIBITS["rebinding all-reduce"].mend in museum.summary.value and "1.00 times" in museum.summary.value


def test_the_length_of_the_first_step_is_told(museum):
    museum.exhibit.value = "mean for sum"
    assert "0.50 times as long" in museum.summary.value
    museum.k.value = 4
    assert "0.25 times as long" in museum.summary.value and "4 replicas" in museum.summary.value


def test_right_code_alone_is_drawn_once_and_a_run_is_kept(museum):
    museum.exhibit.value = RIGHT
    assert [len(trace.y) for trace in museum.figure.data] == [4, 4, 4, 0, 0, 0]
    before = museum.histories[RIGHT]
    museum.lr.value = 0.02
    assert museum.histories[RIGHT] is not before
    museum.lr.value = 0.05
    assert museum.histories[RIGHT] is before


def test_it_is_told_in_words(museum):
    assert "replicas" in repr(museum) and "Symptom" in repr(museum) and museum._draw_still().startswith("<img")


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="exhibits: expected at least one, got none"):
        Museum({})
    with pytest.raises(ValueError, match="k: expected a whole number from 2 to 4"):
        Museum(EXHIBITS, k=1)
    with pytest.raises(ValueError, match="lr: expected one of 0.01"):
        Museum(EXHIBITS, lr=3.0)
    with pytest.raises(ValueError, match="num_epochs: expected a positive whole number"):
        Museum(EXHIBITS, num_epochs=0)
