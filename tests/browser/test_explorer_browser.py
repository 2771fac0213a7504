"""The Scaling explorer in JupyterLab: the page shows what the cost model predicts."""

import json

import pytest
from notebook import errors, move, open_notebook, run_all, until, write

from d2lite.labs.chapter_08.scaling import Setup, describe_scaling, predict_scaling

CELL = """
from d2lite.labs.chapter_08 import ScalingExplorer
explorer = ScalingExplorer(k=8, network="LeNet", batch_size=256, is_global=True)
explorer
"""
BARS = """() => JSON.stringify([...document.querySelectorAll('.d2lite .js-plotly-plot')].map(
    plot => (plot._fullData ?? []).map(
        t => ({type: t.type, name: t.name, x: Array.from(t.x ?? []), y: Array.from(t.y ?? [])}))))"""
WORDS = ".d2lite .widget-html-content"


def parts(step):
    """The parts of a step, in milliseconds, in the order of the bars."""
    return [1e3 * seconds for seconds in (step.overhead_s, step.compute_s, step.exposed_s, step.wait_s)]


def plain(text):
    return text.replace("<b>", "").replace("</b>", "")


def shows(page, setup, k):
    """Whether the summary, the mark and the bars on the page are those of `predict_scaling(setup, k)`."""
    many = predict_scaling(setup, k)
    if page.locator(WORDS).last.inner_text().strip() != plain(describe_scaling(setup, k)):
        return False
    efficiency, step = json.loads(page.evaluate(BARS))
    marks = [trace["y"] for trace in efficiency if trace["x"] == [k]]
    expected = list(zip(parts(predict_scaling(setup, 1).step), parts(many.step), strict=True))
    return marks == [[pytest.approx(many.efficiency)]] and [bar["x"] for bar in step] == [
        pytest.approx(list(pair)) for pair in expected
    ]


@pytest.mark.slow
def test_the_explorer_shows_what_the_model_predicts(lab, page):
    write(lab.folder / "explorer.ipynb", CELL)
    open_notebook(page, lab, "explorer.ipynb")
    run_all(page)
    for n in (0, 1):
        page.wait_for_selector(f".d2lite .js-plotly-plot >> nth={n} >> .main-svg >> nth=0")
    setup = Setup("LeNet", 256, is_global=True)
    until(lambda: shows(page, setup, 8))
    move(page, "GPUs", "ArrowRight", 2)  # 8 -> 12 -> 16
    until(lambda: shows(page, setup, 16))
    move(page, "minibatch", "ArrowRight", 3)  # 256 -> 2,048
    until(lambda: shows(page, Setup("LeNet", 2048, is_global=True), 16))
    page.locator(".d2lite .widget-dropdown:has-text('is for') select").select_option(label="each GPU")
    until(lambda: shows(page, Setup("LeNet", 2048), 16))
    assert errors(page) == [] and page.errors == []
