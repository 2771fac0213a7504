"""A notebook that is opened again after its kernel has ended: the message, and the pictures that are left."""

import json
import urllib.request

import pytest
from notebook import errors, open_notebook, run_all, save_and_reload, until, write

CELLS = (
    "from d2lite.labs.chapter_04 import CollectiveStepper; from d2lite import Panel, train\n"
    'panel = Panel(train, num_gpus=2, batch_size=64, num_epochs=1, fixed={"num_examples": 240})\n'
    "panel.train.click()\npanel.wait()\npanel",
    'CollectiveStepper("ring", 4)',
    'from d2lite import Predict\nPredict("How many steps?", ["three", "six"], key="9.1")',
)
MESSAGE = "Error displaying widget: model not found"  # in book/messages.md


def end_kernels(lab):
    """End all kernels of a server."""
    headers = {"Authorization": f"token {lab.token}"}
    with urllib.request.urlopen(urllib.request.Request(f"{lab.url}/api/kernels", headers=headers)) as answer:
        kernels = json.load(answer)
    for kernel in kernels:
        address = f"{lab.url}/api/kernels/{kernel['id']}"
        urllib.request.urlopen(urllib.request.Request(address, headers=headers, method="DELETE")).close()


@pytest.mark.slow
def test_figures_are_shown_as_pictures(lab, page):
    write(lab.folder / "ended.ipynb", *CELLS)
    open_notebook(page, lab, "ended.ipynb")
    run_all(page)
    page.wait_for_selector(".d2lite .js-plotly-plot .main-svg")
    pictures = page.locator(".d2lite-static img")
    until(lambda: pictures.count() == 3)
    assert not any(picture.is_visible() for picture in pictures.all())  # the figures themselves are there
    save_and_reload(page, lab.folder / "ended.ipynb")
    page.wait_for_selector(".d2lite .js-plotly-plot .main-svg")
    assert page.get_by_text(MESSAGE).count() == 0  # the kernel still has them
    end_kernels(lab)
    page.reload()
    messages = page.get_by_text(MESSAGE)
    until(lambda: messages.count() == 3)
    until(lambda: [picture.is_visible() for picture in pictures.all()] == [True] * 3)
    assert not any(message.is_visible() for message in messages.all())  # the picture is enough
    asked = page.locator(".d2lite-static", has_text="How many steps?")
    assert asked.is_visible() and "six" in asked.inner_text()
    assert "test accuracy, " in pictures.first.get_attribute("alt")
    assert not errors(page)


@pytest.mark.slow
def test_an_exported_page_shows_the_pictures_and_no_texts_above_them(lab, page):
    from nbconvert import HTMLExporter

    write(lab.folder / "exported.ipynb", *CELLS)
    open_notebook(page, lab, "exported.ipynb")
    run_all(page)
    save_and_reload(page, lab.folder / "exported.ipynb")
    exported = lab.folder / "exported.html"
    exported.write_text(HTMLExporter().from_filename(str(lab.folder / "exported.ipynb"))[0], encoding="utf-8")
    page.route("http*://**", lambda route: route.abort())  # no code from elsewhere: a page without a network
    page.goto(exported.as_uri(), wait_until="domcontentloaded")
    pictures = page.locator(".d2lite-static img, .d2lite-static svg")
    until(lambda: pictures.count() >= 3 and all(picture.is_visible() for picture in pictures.all()))
    assert page.locator(".d2lite-static", has_text="How many steps?").is_visible()
    texts = page.locator(".jp-OutputArea-output:not(:has(.d2lite-static)) pre")
    assert [text.inner_text() for text in texts.all() if text.is_visible()] == []


@pytest.mark.slow
def test_a_panel_that_was_closed_leaves_its_picture(lab, page):
    write(lab.folder / "closed.ipynb", CELLS[0], "panel.close()")
    open_notebook(page, lab, "closed.ipynb")
    run_all(page)
    until(lambda: all(picture.is_visible() for picture in page.locator(".d2lite-static img").all()))
    assert page.locator(".d2lite-static img").count() == 2 and not errors(page)


BEFORE = "e => getComputedStyle(e, '::before').content"


@pytest.mark.slow
def test_a_panel_whose_kernel_was_restarted_says_so(lab, page):
    run = "from d2lite import Panel, train\npanel = Panel(train, num_gpus=2, num_epochs=50)\npanel.train.click()\npanel"
    write(lab.folder / "restarted.ipynb", run)
    open_notebook(page, lab, "restarted.ipynb")
    run_all(page)
    panel = page.locator(".d2lite").first
    panel.locator(".js-plotly-plot .main-svg").first.wait_for()
    assert panel.evaluate(BEFORE) == "none"
    page.locator(".jp-CodeCell .jp-InputPrompt").first.click()
    page.keyboard.press("Escape")
    page.keyboard.press("0")
    page.keyboard.press("0")
    page.locator(".jp-Dialog .jp-mod-accept").click()
    until(lambda: "run this cell again" in panel.evaluate(BEFORE))
    assert panel.locator("button").first.evaluate("e => getComputedStyle(e).pointerEvents") == "none"
    assert all(
        content == "none"
        for content in panel.locator(".jupyter-widgets-disconnected").evaluate_all(f"es => es.map({BEFORE})")
    )
