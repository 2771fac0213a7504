"""The game of meshes in JupyterLab: the page shows the predicted step, and the fastest mesh after a click."""

import json

import pytest
from notebook import errors, move, open_notebook, run_all, until, write

from d2lite.costs import Cluster, find_device, find_link
from d2lite.labs.chapter_13 import MEMORY_MODELS
from d2lite.labs.chapter_16 import Mesh, predict_mesh_step

CELL = """
from d2lite.labs.chapter_16 import MeshGame
game = MeshGame()
game
"""
BARS = """() => JSON.stringify(Object.fromEntries([...document.querySelectorAll('.d2lite .js-plotly-plot')].flatMap(
    plot => (plot._fullData ?? []).map(t => [t.name, Array.from(t.x ?? [])]))))"""
WORDS = ".d2lite .widget-html-content"
CLUSTER = Cluster(find_link("NVLink 4 (H100, 18 links)"), find_link("InfiniBand NDR 400 Gb/s"), 8)
GPT3 = next(model for model in MEMORY_MODELS if model.name == "GPT-3, 175 B")


def step_on(*shape):
    return predict_mesh_step(GPT3, Mesh(*shape), 64, find_device("H100, bfloat16, GPT 1.3B"), CLUSTER)


def shows(page, words, *steps):
    """Whether the summary has these words, and the bars are those of these steps."""
    bars = json.loads(page.evaluate(BARS))
    names = {
        "computing": "compute_s",
        "tensor: all-reduces": "tensor_s",
        "pipe: bubble": "bubble_s",
        "data: gradients": "data_s",
    }
    own = all(
        bars.get(name) == [pytest.approx(getattr(step, attribute)) for step in steps if getattr(step, attribute)]
        for name, attribute in names.items()
    )
    held = [pytest.approx(step.memory.activations_n_bytes) for step in steps[:1]]
    return own and bars.get("activations") == held and words in page.locator(WORDS).last.inner_text()


@pytest.mark.slow
def test_the_game_is_played_by_the_keyboard(lab, page):
    write(lab.folder / "game.ipynb", CELL)
    open_notebook(page, lab, "game.ipynb")
    run_all(page)
    for n in (0, 1):
        page.wait_for_selector(f".d2lite .js-plotly-plot >> nth={n} >> .main-svg >> nth=0")
    until(lambda: shows(page, "Not yet: It does not fit", step_on(1, 8, 8)))
    tops = page.locator(".d2lite button:has-text('Show the fastest')").bounding_box()
    move(page, "pipe", "ArrowRight", 2)
    until(lambda: "4 · 8 · 8 = 256, and there are 64 GPUs" in page.locator(WORDS).last.inner_text())
    move(page, "data", "ArrowLeft", 2)
    until(lambda: shows(page, "Solved: yours is at most 2% slower.", step_on(4, 2, 8)))
    assert "The fastest:" not in page.locator(WORDS).last.inner_text()
    page.click(".d2lite button:has-text('Show the fastest')")
    until(lambda: shows(page, "The fastest: pipe 8, data 1, tensor 8", step_on(4, 2, 8), step_on(8, 1, 8)))
    assert page.locator(".d2lite button:has-text('Show the fastest')").bounding_box() == tops  # nothing has moved
    assert errors(page) == [] and page.errors == []
