"""The device lanes in JupyterLab: they move, can be slowed down and stepped, and fit a narrow page."""

import pytest
from notebook import errors, open_notebook, run_all, run_cell, until, write

SHOW = """
import torch
from d2lite.profiling import ImageGuesses, RecordedStep
from d2lite.trace import Event
from d2lite.widgets.device_lanes import DeviceLanes

def step(number):
    events = [Event(rank=rank, kind=kind, name=kind, start_s=0.01 * i, end_s=0.01 * (i + 1))
              for rank in (0, 1) for i, kind in enumerate(("forward", "backward"))]
    images = [torch.full((6, 28, 28), 40 * number, dtype=torch.uint8)] * 2
    return RecordedStep(number, events, images, [128, 128], 516_000)

lanes = DeviceLanes()
lanes.show_step(step(1))
lanes.show_tests(ImageGuesses(torch.zeros(8, 28, 28, dtype=torch.uint8), torch.arange(8), torch.zeros(8)))
lanes
"""
NEXT = "lanes.show_step(step(2))"
FILLED = "fills => fills.map(fill => parseFloat(fill.style.width))"
ACTIVE = ".d2lite-lanes .parts .active"


@pytest.fixture
def lanes(lab, page):
    write(lab.folder / "lanes.ipynb", SHOW, NEXT)
    open_notebook(page, lab, "lanes.ipynb")
    run_cell(page, 0)
    assert not errors(page)
    page.wait_for_selector(".d2lite-lanes .lane >> nth=1")
    return page


@pytest.mark.slow
def test_a_panel_whose_training_records_nothing_has_none(lab, page):
    write(
        lab.folder / "none.ipynb", "from d2lite import Panel\nPanel(lambda lr=0.1, animator=None: animator.add(1, lr))"
    )
    open_notebook(page, lab, "none.ipynb")
    run_all(page)
    page.wait_for_selector(".d2lite .js-plotly-plot .main-svg")
    assert page.locator(".d2lite-lanes").count() == 1 and not page.locator(".d2lite-lanes").is_visible()


def press(page, text):
    page.locator(".d2lite-lanes button", has_text=text).click()


@pytest.mark.slow
def test_they_move_are_slowed_by_the_mouse_and_can_be_stepped(lanes):
    page, fills = lanes, lanes.locator(".d2lite-lanes .fill")
    until(lambda: fills.evaluate_all(FILLED) == [100] * 4)  # by itself
    run_cell(page, 1)
    words = page.locator(".d2lite-lanes .head span")
    until(lambda: words.inner_text().startswith("Step 2: 20 ms"))
    assert words.inner_text().endswith("shown slowly")
    page.locator(".d2lite-lanes .rows").hover()
    until(lambda: words.inner_text().endswith("at a quarter of the speed"))
    press(page, "Pause")
    for part in "41":  # from wherever it was to the end, and on to the first part of the next step
        while page.locator(ACTIVE).inner_text()[0] != part:
            press(page, "Next part")
    seen = [page.locator(ACTIVE).inner_text()[0]]
    for _ in range(4):
        press(page, "Next part")
        seen.append(page.locator(ACTIVE).inner_text()[0])
    assert "".join(seen) == "12334"  # 3: there and back
    assert (
        page.locator(".d2lite-lanes .test.right").count() == 1
        and page.locator(".d2lite-lanes .test.wrong").count() == 7
    )
    press(page, "Play")
    assert not errors(page) and not page.errors


# the parts of the lanes that stick out: [class, pixels at the right]
OUT = """lanes => [...lanes.querySelectorAll('.lane > *, .hub, .text, .test, .parts span, button')].flatMap(part => {
    const box = (part.closest('.block') ?? lanes).getBoundingClientRect(), own = part.getBoundingClientRect();
    return own.left < box.left - 1 || own.right > box.right + 1 ? [[part.className, own.right - box.right]] : []; })"""
DOTS = """lanes => [...lanes.querySelectorAll('.dot')].map(dot => {
    const [one, sum] = [dot, lanes.querySelector('.hub')].map(part => part.getBoundingClientRect());
    const x = one.left + one.right - sum.left - sum.right, y = one.top + one.bottom - sum.top - sum.bottom;
    return Math.hypot(x, y) / 2;
})"""


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 800])
def test_nothing_sticks_out_and_the_gradients_reach_the_sum(lanes, width):
    page, all_of_it = lanes, lanes.locator(".d2lite-lanes")
    page.set_viewport_size({"width": width, "height": 900})  # with the list of files
    until(lambda: all_of_it.evaluate("lanes => lanes.clientWidth") < (500 if width == 800 else 1000))
    until(lambda: all_of_it.evaluate(OUT) == [])
    assert page.locator(".d2lite-lanes .track").first.evaluate("track => track.clientWidth") > 150
    page.click(".jp-CodeCell >> nth=1 >> .cm-content")
    page.keyboard.press("Control+Enter")
    until(lambda: page.locator(".d2lite-lanes .head span").inner_text().startswith("Step 2"))
    nearest = [1000.0]
    until(lambda: nearest.append(max(all_of_it.evaluate(DOTS))) or min(nearest) < 15, every=0.02)


@pytest.mark.slow
def test_reduced_motion_gets_the_complete_step_at_once(lab, page):
    page.emulate_media(reduced_motion="reduce")
    write(lab.folder / "still.ipynb", SHOW, NEXT)
    open_notebook(page, lab, "still.ipynb")
    run_all(page)
    until(lambda: page.locator(".d2lite-lanes .head span").inner_text().startswith("Step 2"))
    assert page.locator(".d2lite-lanes .fill").evaluate_all(FILLED) == [100] * 4
    assert page.locator(ACTIVE).inner_text().startswith("4")
    press(page, "Play")  # whoever wants to see it move can
    until(lambda: page.locator(".d2lite-lanes button", has_text="Pause").count())
