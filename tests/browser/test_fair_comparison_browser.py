"""The fair comparison and the live grid in JupyterLab: a click trains, the page shows the verdict and the cells."""

import pytest
from notebook import errors, open_notebook, run_all, until, write

CELL = """
from d2lite.training import Arm
from d2lite.widgets import FairComparison, LearningRateGrid
panel = FairComparison(Arm("A", 24, 0.1), Arm("B", 48, 0.2), num_seeds=2, num_examples=240, num_epochs=2)
grid = LearningRateGrid((60, 120), (0.1, 0.4, 1.6), num_examples=120, num_epochs=1)
display(panel, grid)
"""
POINTS = """() => JSON.stringify([...document.querySelectorAll('.d2lite .js-plotly-plot')].map(
    plot => (plot._fullData ?? []).map(t => (t.x ?? []).length)))"""


@pytest.mark.slow
def test_a_click_trains_and_the_page_shows_the_result(lab, page):
    write(lab.folder / "fair.ipynb", CELL)
    open_notebook(page, lab, "fair.ipynb")
    run_all(page)
    for n in (0, 1):
        page.wait_for_selector(f".d2lite .js-plotly-plot >> nth={n} >> .main-svg >> nth=0")
    words = page.locator(".d2lite .widget-html-content")
    for n, done in ((0, "Finished · 4 of 4"), (1, "Finished · 6 of 6")):
        page.locator('.d2lite button.jupyter-button:has-text("Run")').nth(n).click()
        until(lambda done=done: any(done in text for text in words.all_inner_texts()))
    for part in ("The arms differ in: batch size, lr.", "points against A", "rate of each minibatch: 60: "):
        until(lambda part=part: part in " ".join(words.all_inner_texts()))
    until(lambda: page.evaluate(POINTS) == "[[4,4,4,4,4,4],[3,2]]")
    assert not errors(page)
