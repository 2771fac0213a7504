"""Whodunit in JupyterLab by keyboard alone: a case is accused, revealed, scored, and the next one drawn."""

import os

import pytest
from notebook import errors, focused, idle, open_notebook, run_cell, until, write

GAME = """
from d2lite.labs.chapter_12 import Whodunit
game = Whodunit(3, seed=2, causes=["size", "missing", "data"])
game
"""


@pytest.mark.slow
def test_by_keyboard_alone(lab, page):
    write(lab.folder / "whodunit.ipynb", GAME)
    open_notebook(page, lab, "whodunit.ipynb")
    run_cell(page, 0)
    panel = page.locator(".d2lite:has(.js-plotly-plot)").first
    panel.locator(".main-svg").first.wait_for(state="attached")
    assert "Accuse" in panel.inner_text() and "does not match" not in panel.inner_text()
    if folder := os.environ.get("D2LITE_SCREENSHOTS"):
        page.screenshot(path=f"{folder}/whodunit-open.png")
    panel.locator("select >> nth=0").focus()
    page.keyboard.press("ArrowDown")  # rank 1
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    until(lambda: focused(page) == "Accuse")
    page.keyboard.press("Enter")
    until(lambda: "It was rank" in panel.inner_text() and "of 1 cases right" in panel.inner_text())
    if folder := os.environ.get("D2LITE_SCREENSHOTS"):
        page.screenshot(path=f"{folder}/whodunit-revealed.png")
    until(lambda: focused(page) == "Next case")
    page.keyboard.press("Enter")
    until(lambda: "Read the records" in panel.inner_text() and focused(page) == "Accuse")
    idle(page)
    assert not errors(page)
