"""The panel and the chapter in JupyterLab, driven as a learner drives them."""

import json
import shutil

import pytest
from notebook import (
    errors,
    idle,
    move,
    open_notebook,
    points,
    press,
    rows,
    run_all,
    run_cell,
    save,
    save_and_reload,
    set_number,
    settled,
    start_run_all,
    until,
    write,
)

from tests.browser.lab import ROOT

CHAPTER = ROOT / "book" / "02-data-parallel-from-scratch.ipynb"
PANEL = """
from d2lite import Panel, train
panel = Panel(train, num_gpus=1, lr=0.05, batch_size=64, num_epochs=2, fixed={"num_examples": 1000})
panel.controls["num_epochs"].max = 500
panel
"""
LONG = 500  # epochs: such a run goes on until Stop, however slow the page is
COLUMNS = ["run", "test accuracy", "s/epoch", "examples/s", "speed-up", "status", "devices", "data"]


def finished(page, n):
    """The rows of the table, once the n-th run has ended."""
    table = rows(page)
    return table if len(table) == n + 1 and "running" not in table[-1] else None


def is_running(page):
    """Whether the last row of the table is that of a run that goes on."""
    return "running" in rows(page)[-1]


def wait_for_panel(page):
    """Wait until a panel is drawn: its figures with their axes, its table, and all controls in their places."""
    page.wait_for_selector(".d2lite .js-plotly-plot .main-svg")
    page.wait_for_selector(".d2lite .js-plotly-plot .xtick text", state="attached")
    page.wait_for_selector(".d2lite table th")
    settled(lambda: page.evaluate(BOXES))


# the places of a panel's parts, from its own corner: a page that scrolls moves none of them; the table at the end grows
BOXES = """() => {
    const root = document.querySelector('.d2lite'), from = root.getBoundingClientRect();
    const parts = root.querySelectorAll(':scope > :not(.newest), button.jupyter-button');
    return [...parts].map(e => e.getBoundingClientRect()).filter(r => r.width).map(
        r => [r.left - from.left, r.top - from.top, r.width, r.height].map(Math.round));
}"""


@pytest.fixture
def panel(lab, page):
    """A page with a panel for the package's own training function."""
    write(lab.folder / "panel.ipynb", PANEL, "1 + 1")
    open_notebook(page, lab, "panel.ipynb")
    run_all(page)
    wait_for_panel(page)
    return page


def test_train_by_keyboard_read_stop_and_save(panel, lab):
    move(panel, "num_gpus", "ArrowRight")  # by keyboard alone, but for the number
    set_number(panel, "lr", 0.1)
    until(lambda: "2 replicas" in panel.inner_text(".d2lite"))
    panel.locator('.d2lite button:has-text("Train")').focus()
    panel.keyboard.press("Enter")
    table = until(lambda: finished(panel, 1))
    assert table[0] == COLUMNS
    row = dict(zip(COLUMNS, table[1], strict=True))
    assert row["run"] == "2 devices · lr 0.1 · batch 64" and row["status"] == "finished"
    assert row["speed-up"] == "–" and "num_gpus 1 to compare" in panel.inner_text(".d2lite-speed")
    assert row["devices"].startswith("2 replicas") and float(row["s/epoch"]) > 0
    (curve,) = until(lambda: len(points(panel)) == 1 and len(points(panel)[0]["x"]) == 2 and points(panel))
    assert curve["x"] == [1, 2] and f"{curve['y'][-1]:.1%}" == row["test accuracy"]

    set_number(panel, "num_epochs", LONG)
    press(panel, "Train")
    until(lambda: len(points(panel)) == 2 and all(curve["x"] for curve in points(panel)))
    until(lambda: is_running(panel))
    run_cell(panel, 1)  # the kernel is free while it trains
    assert is_running(panel)
    press(panel, "Stop")
    table = until(lambda: finished(panel, 2))
    assert table[2][5] == "stopped" and len({tuple(row) for row in table}) == 3

    press(panel, "Save")
    until(lambda: "Saved as" in panel.inner_text(".d2lite"))
    (file,) = lab.folder.glob("d2lite-runs-*.json")
    saved = json.loads(file.read_text("utf-8"))
    assert [run["status"] for run in saved["runs"]] == ["finished", "stopped"]
    press(panel, "Clear")
    until(lambda: points(panel) == [] and len(rows(panel)) == 1)
    assert not errors(panel) and not panel.errors


@pytest.mark.slow
def test_nothing_jumps_and_nothing_is_covered(panel):
    before, seen = panel.evaluate(BOXES), []
    for n in (1, 2, 3):
        press(panel, "Train")
        until(lambda n=n: seen.append(panel.evaluate(BOXES)) or finished(panel, n))
    assert all(box == before for box in seen)
    named = """() => {  // are the names of the three curves inside of the figure, and none on another one?
        const plot = document.querySelector('.d2lite .js-plotly-plot');
        const names = [...plot.querySelectorAll('.annotation text')].map(e => e.getBoundingClientRect());
        if (names.length !== 3) return null;  // it is being drawn
        const frame = plot.getBoundingClientRect(), down = names.toSorted((a, b) => a.top - b.top);
        return [names.every(r => r.right <= frame.right + 1 && r.top >= frame.top && r.bottom <= frame.bottom),
            down.slice(1).every((r, i) => r.top >= down[i].bottom - 3)];
    }"""
    assert settled(lambda: panel.evaluate(named)) == [True, True]


NAMES = """() => [...document.querySelectorAll('.d2lite .noUi-handle')].map(
    handle => [handle.getAttribute('aria-label'), handle.getAttribute('aria-valuetext')])"""
WORDS = """() => [...document.querySelectorAll('.d2lite [role=img]')].map(e => e.getAttribute('aria-label'))"""


@pytest.mark.slow
def test_names_words_and_focus_and_a_page_that_is_loaded_again(panel, lab):
    until(lambda: panel.evaluate(NAMES) == [["num_gpus", "1"], ["lr", "0.050"], ["num_epochs", "2"]])
    set_number(panel, "num_epochs", LONG)
    panel.locator('.d2lite button:has-text("Train")').focus()
    panel.keyboard.press("Enter")
    until(lambda: panel.evaluate("document.activeElement.textContent") == "Stop")
    until(lambda: [curve for curve in points(panel) if len(curve["x"]) >= 2])

    def stopped():
        if panel.evaluate("document.activeElement.textContent") == "Stop":
            panel.keyboard.press("Enter")
        return finished(panel, 1)

    until(stopped, every=5)
    until(lambda: panel.evaluate("document.activeElement.textContent") == "Train")

    def state():
        return points(panel), rows(panel), panel.evaluate(WORDS)

    def words_fit(curves, _, words):
        if not curves or len(words) != 2:
            return False
        return f": {len(curves[0]['x'])} points, from" in words[0] and words[1].startswith("training loss per step")

    until(lambda: words_fit(*state()))
    before = settled(state, still_s=3)
    assert words_fit(*before)
    save_and_reload(panel, lab.folder / "panel.ipynb")
    until(lambda: state() == before)
    assert not panel.errors


ENDLESS = """
from d2lite import Panel
def endless(lr=0.1, animator=None):
    animator.legend = ['<b>loss</b> %{x} & "more"']
    animator.add(1, lr)
    print("<b>counting</b>")
    while True:
        pass
panel = Panel(endless)
panel
"""


@pytest.mark.slow
def test_a_function_that_does_not_see_stop_is_interrupted(lab, page):
    write(lab.folder / "endless.ipynb", ENDLESS)
    open_notebook(page, lab, "endless.ipynb")
    run_all(page)
    wait_for_panel(page)
    before, shown = page.evaluate(BOXES), page.locator('.d2lite button:has-text("Interrupt")')
    assert not shown.is_visible()
    press(page, "Train")
    until(lambda: "<b>counting</b>" in page.inner_text(".d2lite"))
    title = page.locator(".d2lite .js-plotly-plot .gtitle")
    until(lambda: '<b>loss</b> %{x} & "more", data not named' in title.all_text_contents())
    press(page, "Stop")
    until(lambda: "Press Interrupt" in page.inner_text(".d2lite"))
    until(shown.is_visible)
    assert page.evaluate(BOXES) == before
    press(page, "Interrupt")
    until(lambda: finished(page, 1))
    until(shown.is_hidden)
    assert "stopped" in rows(page)[1] and page.evaluate(BOXES) == before
    assert not errors(page) and not page.errors


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_words_can_be_read_in_both_themes(lab, page, theme):
    lab.theme(theme)
    write(lab.folder / "theme.ipynb", PANEL)
    open_notebook(page, lab, "theme.ipynb")
    run_all(page)
    wait_for_panel(page)
    colours = """() => [
        getComputedStyle(document.querySelector('.d2lite .xtick text')).fill,
        getComputedStyle(document.querySelector('.d2lite table th')).color,
        getComputedStyle(document.querySelector('.jp-Notebook')).backgroundColor]"""
    figure, table, page_colour = page.evaluate(colours)
    lab.theme("Light")
    for colour in (figure, table):
        assert contrast(colour, page_colour) >= 4.5, (theme, colour, page_colour)


def contrast(one, other):
    """The contrast of two CSS colours as WCAG counts it."""

    def luminance(colour):
        channels = [float(v) / 255 for v in colour.split("(")[1].rstrip(")").split(",")[:3]]
        r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def saved_outputs(notebook):
    """The outputs of the first cell of a notebook file; none while the server is still writing it."""
    try:
        return json.loads(notebook.read_text("utf-8"))["cells"][0]["outputs"]
    except ValueError:
        return []


@pytest.mark.slow
def test_an_animator_grows_while_its_cell_runs(lab, page):
    code = """
    import time
    from d2lite import Animator
    animator = Animator("epoch", "value", legend=["loss", "accuracy"], xlim=[0, 100], ylim=[0, 1])
    for i in range(100):
        animator.add(i, (1 / (1 + i), i / 100))
        time.sleep(0.1)
    """
    lines = "\n".join(line[4:] for line in code.splitlines())
    write(lab.folder / "animator.ipynb", lines)
    open_notebook(page, lab, "animator.ipynb")
    start_run_all(page)
    length = "() => document.querySelector('.js-plotly-plot')?._fullData?.[0]?.x?.length ?? 0"
    seen = []
    until(lambda: seen.append(page.evaluate(length)) or seen[-1] == 100)
    assert len({n for n in seen if 0 < n < 100}) >= 3  # it was seen to grow
    idle(page)
    page.wait_for_selector(".jp-RenderedPlotly .main-svg")  # the static figure, which stays
    assert settled(lambda: page.evaluate(length)) == 100 and not errors(page) and not page.errors
    saved = save(page, lambda: saved_outputs(lab.folder / "animator.ipynb"))
    words, figure = (output["data"] for output in saved)
    assert "loss: 100 points, from 1 at 0 to 0.01 at 99" in "".join(words["text/html"])
    assert "image/svg+xml" in figure  # what GitHub shows
    save_and_reload(page, lab.folder / "animator.ipynb")
    shown = page.locator(".jp-RenderedPlotly img.plot-img")  # a picture of JupyterLab's, its texts in grey
    assert until(lambda: shown.evaluate("image => getComputedStyle(image).filter")) == "brightness(0.88)"


@pytest.mark.release
@pytest.mark.skipif(not CHAPTER.exists(), reason="the chapter is not there")
def test_chapter_2(lab, page):
    shutil.copy(CHAPTER, lab.folder / "chapter.ipynb")
    open_notebook(page, lab, "chapter.ipynb")
    run_all(page, 400)
    assert not errors(page)
    page.wait_for_selector(".d2lite .js-plotly-plot .main-svg")
    before = len(settled(lambda: rows(page))) - 1  # the chapter itself drives the panel
    move(page, "num_gpus", "Home")
    move(page, "num_gpus", "ArrowRight")
    set_number(page, "lr", 0.1)
    set_number(page, "num_epochs", 10)
    press(page, "Train")
    until(lambda: [curve for curve in points(page)[before:] if any(y > 0.6 for y in curve["y"])], 240)
    table = until(lambda: finished(page, before + 1), 240)
    row = dict(zip(table[0], table[-1], strict=True))
    assert row["run"].startswith("2 devices · lr 0.1") and row["devices"].startswith("2 replicas")
    assert row["status"] == "finished"
    assert row["data"].startswith("Fashion-MNIST, ")
    set_number(page, "num_epochs", 20)
    press(page, "Train")
    panel = page.locator('.d2lite:has(button:has-text("Train"))')
    until(lambda: rows(page)[-1][5] == "running" and "step" in panel.inner_text())
    press(page, "Stop")
    table = until(lambda: finished(page, before + 2))
    assert table[-1][5] == "stopped"
    assert float(table[-2][4].rstrip("×")) > 0 and not page.errors
