"""Predict in JupyterLab, by keyboard alone: answered, locked, loaded again, run again, revealed; light and dark."""

import json
import shutil

import pytest
from notebook import errors, focused, open_notebook, points, press, run_cell, save_and_reload, settled, until, write

from tests.browser.lab import ROOT
from tests.browser.test_panel_browser import contrast

ASK = """
from d2lite import Predict
fast = Predict("How many times as fast as one device are two?", unit="×", key="2.3", kind="speed-up")
same = Predict("Are the replicas equal?", choices=["bit for bit", "up to rounding, and then further and further", "no"])
display(fast, same)
"""
REVEAL = 'fast.reveal(1.6, on="2 replicas on 2 CPU cores"); same.reveal("bit for bit")'
COLOURS = """() => {
    const shown = ['.d2lite-question', '.d2lite-predict .widget-html-content', WORDS].map(
        s => document.querySelector(s));
    return shown.includes(null) ? [] : shown.map(e => getComputedStyle(e).color).concat(
        getComputedStyle(document.querySelector('.jp-Notebook')).backgroundColor);
}"""


def assert_words_can_be_read(page, words):
    """Their contrast, once the page has drawn them and the style sheet."""
    *colours, background = settled(lambda: page.evaluate(COLOURS.replace("WORDS", f"'{words}'")))
    assert len(colours) == 3 and all(contrast(colour, background) >= 4.5 for colour in colours)


@pytest.mark.slow
def test_by_keyboard_alone(lab, page):
    write(lab.folder / "predict.ipynb", ASK, REVEAL)
    open_notebook(page, lab, "predict.ipynb")
    run_cell(page, 0)
    fast, same = page.locator(".d2lite-predict >> nth=0"), page.locator(".d2lite-predict >> nth=1")
    fast.wait_for()
    same.locator("[role=radiogroup] input[type=radio] >> nth=0").wait_for()
    assert_words_can_be_read(page, ".widget-radio-box label")
    heights = settled(lambda: [one.bounding_box()["height"] for one in (fast, same)])

    fast.locator("input[type=text]").focus()
    page.keyboard.type("two")
    page.keyboard.press("Enter")
    until(lambda: "Expected a number" in fast.inner_text())
    page.keyboard.press("Control+A")
    page.keyboard.type("1.9 x")
    page.keyboard.press("Enter")
    until(lambda: "1.9×" in fast.inner_text() and "Predict again" in fast.inner_text())
    until(lambda: focused(page) == "Predict again")  # the focus is not lost with the field
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    until(lambda: page.evaluate("document.activeElement.parentElement.textContent").startswith("up to rounding"))
    page.keyboard.press("Tab")
    until(lambda: focused(page) == "Commit")
    page.keyboard.press("Enter")
    until(lambda: "further and further" in same.inner_text() and "not yet" in same.inner_text())
    assert settled(lambda: [one.bounding_box()["height"] for one in (fast, same)]) == heights  # nothing jumps
    kept = json.loads((lab.folder / "d2lite-ledger.json").read_text("utf-8"))["predictions"]
    assert kept["2.3"]["answers"] == [1.9] and kept["2.3"]["measured"] is None

    lab.theme("Dark")
    save_and_reload(page, lab.folder / "predict.ipynb")
    fast.locator("text=1.9×").wait_for()
    lab.theme("Light")
    until(lambda: "Predict again" in fast.inner_text())
    assert_words_can_be_read(page, ".widget-radio-box label")  # of the choices, hidden by now
    run_cell(page, 0)  # a new widget, locked by the ledger
    until(lambda: page.locator(".jp-CodeCell >> nth=0").inner_text().count("Predict again") == 2)
    run_cell(page, 1)
    until(lambda: "1.6×" in fast.inner_text() and "wrong" in same.inner_text())
    shown = page.locator(".jp-CodeCell >> nth=1 >> .jp-OutputArea-output >> nth=0").inner_text()
    assert "1.9×" in shown and "2 replicas on 2 CPU cores" in shown and "19% too high" in shown
    assert not errors(page) and not page.errors


# what Colab's widget manager does whenever an answer is chosen
REBUILT = """() => {
    const box = document.querySelector('.d2lite-predict .widget-radio-box');
    const fresh = [...box.children].map(label => {
        const copy = label.cloneNode(true), radio = copy.querySelector('input');
        radio.removeAttribute('name');
        radio.checked = label.querySelector('input').checked;
        return copy;
    });
    box.replaceChildren(...fresh);
}"""
RADIOS = """() => [...document.querySelectorAll('.d2lite-predict input[type=radio]')].map(
    radio => [radio.name, radio.checked, radio === document.activeElement])"""


@pytest.mark.slow
def test_answers_that_are_drawn_anew_stay_one_group_with_the_focus(lab, page):
    ask = 'from d2lite import Predict\nPredict("Equal?", ["yes", "nearly", "no"], key="9.9")'
    write(lab.folder / "anew.ipynb", ask)
    open_notebook(page, lab, "anew.ipynb")
    run_cell(page, 0)
    page.locator("[role=radiogroup] input[type=radio] >> nth=0").wait_for()
    page.evaluate(REBUILT)
    focus = settled(lambda: page.evaluate("String(document.activeElement.type)"))
    assert focus != "radio"  # it was elsewhere, and stays there
    page.locator(".d2lite-predict input[type=radio] >> nth=0").focus()
    page.keyboard.press("Space")
    for chosen in (0, 1):
        until(lambda n=chosen: page.evaluate(RADIOS)[n][1:] == [True, True])
        page.evaluate(REBUILT)
        names, checked, has_focus = zip(*settled(lambda: page.evaluate(RADIOS)), strict=True)
        assert names[0] and len(set(names)) == 1
        assert checked == has_focus == tuple(n == chosen for n in range(3))
        page.keyboard.press("ArrowDown")
    assert not errors(page) and not page.errors


@pytest.mark.slow
def test_the_index_trains_after_two_keys_and_shows_the_ledger(lab, page):
    shutil.copy(ROOT / "book" / "index.ipynb", lab.folder)
    kept = {"question": "How many?", "answers": [46], "measured": 47, "how": "counted", "within": 0}
    (lab.folder / "d2lite-ledger.json").write_text(json.dumps({"predictions": {"1.1": kept}}))
    open_notebook(page, lab, "index.ipynb")
    # without a click: the first cell is chosen when the page opens
    until(lambda: page.evaluate("Boolean(document.activeElement?.closest('.jp-Notebook'))"))
    page.keyboard.press("Shift+Enter")
    page.wait_for_selector(".jp-CodeCell.jp-mod-active")
    page.keyboard.press("Shift+Enter")
    page.wait_for_selector(".d2lite .js-plotly-plot .main-svg")
    until(lambda: [curve for curve in points(page) if len(curve["x"]) >= 2])
    page.wait_for_selector(".d2lite-lanes .lane >> nth=1")  # the devices at work
    press(page, "Stop")
    run_cell(page, 2)
    page.wait_for_selector("text=0 of 1 prediction was right.")
    assert "1 too low" in page.locator(".jp-CodeCell >> nth=2 >> .jp-OutputArea").inner_text()
    assert not errors(page) and not page.errors
