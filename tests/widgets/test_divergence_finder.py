import pytest

pytest.importorskip("ipywidgets")
pytest.importorskip("plotly")
pytest.importorskip("anywidget")

from d2lite import train_batch  # noqa: E402
from d2lite.bugs import compare_replicas, find_divergence  # noqa: E402
from d2lite.widgets.divergence_finder import DivergenceFinder  # noqa: E402
from d2lite.widgets.live_figure import close_all  # noqa: E402
from tests.bugs.test_divergence import at_step, run  # noqa: E402


def broken():
    return run(at_step(3, lambda device_params: device_params[1][0].mul_(2)), steps=5)


@pytest.fixture
def finder():
    finder = DivergenceFinder(find_divergence(run(k=1, steps=5), broken()))
    yield finder
    close_all(finder.view)


def test_it_begins_at_the_first_difference_with_pictures_and_the_line(finder):
    assert finder.step.value == 3 and finder.tensor.value == (True, 1, 0)
    assert finder.summary.value.count("<svg") == 3
    assert "step 3, after the update: the weight of conv1.weight on replica 1" in finder.summary.value
    assert "<code>change(device_params)</code>" in finder.summary.value


def test_the_slider_goes_to_steps_that_were_kept_and_to_others(finder):
    finder.step.value = 2
    assert "Step 2, last written by line" in finder.summary.value and finder.summary.value.count("<svg") == 3
    finder.step.value = 5
    assert "Step 5: no pictures" in finder.summary.value and "<svg" not in finder.summary.value
    (line,) = finder.figure.layout.shapes
    assert line.x0 == line.x1 == 5


@pytest.mark.slow
def test_every_kept_tensor_can_be_chosen(finder):
    assert len(finder.tensor.options) == 2 * 2 * 8
    for _, key in finder.tensor.options:
        finder.tensor.value = key
        assert finder.summary.value.count("<svg") == 3


def test_replicas_of_one_run_and_runs_without_a_difference():
    for comparison, words in ((compare_replicas(broken()), "replica 0"), (compare_replicas(run()), "bit for bit")):
        finder = DivergenceFinder(comparison)
        assert words in finder.summary.value and "DivergenceFinder" in repr(finder)
        close_all(finder.view)


def test_code_is_escaped():
    def step(X, y, device_params, devices, lr):
        train_batch(X, y, device_params, devices, lr), "<script>"

    finder = DivergenceFinder(compare_replicas(run(lambda *args: step(*args[:2], args[2][:1], args[3][:1], args[4]))))
    assert "<script>" not in finder.summary.value
    close_all(finder.view)


def test_what_is_no_comparison_is_refused():
    with pytest.raises(TypeError, match="comparison: expected"):
        DivergenceFinder(3)
