"""The fair comparison in JupyterLab: a click trains, and the page shows the verdict."""

import pytest
from notebook import errors, open_notebook, run_all, until, write

CELL = """
from d2lite.labs.chapter_09 import Arm
from d2lite.labs.chapter_09 import FairComparison
panel = FairComparison(Arm("A", 24, 0.1), Arm("B", 48, 0.2), num_seeds=2, num_examples=240, num_epochs=2)
display(panel)
"""
POINTS = """() => JSON.stringify([...document.querySelectorAll('.d2lite .js-plotly-plot')].map(
    plot => (plot._fullData ?? []).map(t => (t.x ?? []).length)))"""


@pytest.mark.slow
def test_a_click_trains_and_the_page_shows_the_result(lab, page):
    write(lab.folder / "fair.ipynb", CELL)
    open_notebook(page, lab, "fair.ipynb")
    run_all(page)
    page.wait_for_selector(".d2lite .js-plotly-plot >> .main-svg >> nth=0")
    words = page.locator(".d2lite .widget-html-content")
    page.locator('.d2lite button.jupyter-button:has-text("Run")').click()
    until(lambda: any("finished" in text and "4 of 4 trainings" in text for text in words.all_inner_texts()))
    for part in ("The arms differ in: batch size, lr.", "points against A"):
        until(lambda part=part: part in " ".join(words.all_inner_texts()))
    until(lambda: page.evaluate(POINTS) == "[[4,4,4,4,4,4]]")
    assert not errors(page)
