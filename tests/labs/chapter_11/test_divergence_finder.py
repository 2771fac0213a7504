import pytest

pytest.importorskip("ipywidgets")
pytest.importorskip("plotly")
pytest.importorskip("anywidget")

from d2lite import train_batch  # noqa: E402
from d2lite.labs.chapter_11 import compare_replicas, find_divergence  # noqa: E402
from d2lite.labs.chapter_11.divergence_finder import DivergenceFinder  # noqa: E402
from d2lite.widgets.live_figure import close_all  # noqa: E402
from tests.labs.chapter_11.test_divergence import at_step, run  # noqa: E402


def broken():
    return run(at_step(3, lambda device_params: device_params[1][0].mul_(2)), steps=5)


@pytest.fixture
def finder():
    finder = DivergenceFinder(find_divergence(run(k=1, steps=5), broken()))
    yield finder
    close_all(finder.view)


def test_it_begins_at_the_first_difference_with_pictures_and_the_line(finder):
    assert finder.step.value == 3 and finder.tensor.value == (True, 1, 0)
    assert "step 3, after the update: the weight of conv1.weight on replica 1" in finder.summary.value
    assert "change(device_params)" in finder.summary.value and "last written" not in finder.pictures.value
    assert finder.pictures.value.count("<svg") == 3 and "replica 1, second run" in finder.pictures.value


def test_each_step_that_can_be_chosen_has_pictures_and_a_line_in_the_figure(finder):
    assert [step for _, step in finder.step.options] == [2, 3, 4] == sorted(finder.comparison.kept)
    seen = set()
    for _, step in finder.step.options:
        finder.step.value = step
        assert finder.pictures.value.count("<svg") == 3
        assert step == 3 or f"Step {step}, last written by line" in finder.pictures.value
        (line,) = finder.figure.layout.shapes
        assert line.x0 == line.x1 == step
        seen.add(finder.pictures.value)
    assert len(seen) == 3


@pytest.mark.slow
def test_every_kept_tensor_can_be_chosen(finder):
    assert len(finder.tensor.options) == 2 * 2 * 8
    for _, key in finder.tensor.options:
        finder.tensor.value = key
        assert finder.pictures.value.count("<svg") == 3


def test_replicas_of_one_run_are_compared_with_the_first():
    finder = DivergenceFinder(compare_replicas(broken()))
    assert "replica 0" in finder.pictures.value and "DivergenceFinder" in repr(finder)
    finder.step.value = 2
    assert "difference: none" in finder.pictures.value
    assert "<svg" in finder._draw_static() and finder.step in finder.view.children[3].children
    close_all(finder.view)


def test_runs_without_a_difference_have_no_controls():
    finder = DivergenceFinder(compare_replicas(run()))
    assert "bit for bit" in finder.summary.value and finder.pictures.value == "" and not finder.figure.layout.shapes
    assert not any(finder.step in getattr(child, "children", ()) for child in finder.view.children)
    close_all(finder.view)


def test_code_is_escaped():
    def step(X, y, device_params, devices, lr):
        train_batch(X, y, device_params, devices, lr), "<script>"

    finder = DivergenceFinder(compare_replicas(run(lambda *args: step(*args[:2], args[2][:1], args[3][:1], args[4]))))
    assert "<script>" not in finder.summary.value + finder.pictures.value
    close_all(finder.view)


def test_what_is_no_comparison_is_refused():
    with pytest.raises(TypeError, match="comparison: expected"):
        DivergenceFinder(3)
