"""The index in JupyterLab and Chromium: how soon something moves, how soon there is a curve, and the page's cores."""

import tempfile
from pathlib import Path

import nbformat

from benchmarks.report import Row
from tests.browser.lab import ARGUMENTS, CHROMIUM, ROOT, serving
from tests.browser.notebook import open_notebook, run_cell, until

__all__ = ["rows"]

# {what: seconds from now until the page had it}, in `seen` of the page
_WATCH = """() => {
    const start = performance.now(), seen = globalThis.seen = {};
    const plots = () => [...document.querySelectorAll('.d2lite .js-plotly-plot')];
    const has = {
        movement: () => document.querySelector('.jp-OutputArea-output progress, .d2lite .progress-bar'),
        curve: () => plots().some(plot => plot._fullData?.some(trace => (trace.x ?? []).length > 1)),
        lanes: () => document.querySelector('.d2lite-lanes .lane'),
    };
    setInterval(() => Object.keys(has).forEach(what => {
        if (!(what in seen) && has[what]()) seen[what] = (performance.now() - start) / 1000;
    }), 50);
}"""


def rows(n=3):
    """Return the rows of the page: `n` rounds of the index's first cell, each with a server and a kernel of its own.

    `cores` is what the panel calls other programs: on a machine that does nothing else, the page and its server.
    """
    if CHROMIUM is None:
        return [Row("index in a browser", skipped="Chromium is not installed")]
    found = [_round() for _ in range(n)]

    def column(what):
        return [seconds[what] for seconds in found]

    return [
        Row("index, cell to first movement", "s", column("movement"), target=("ours", 1.0)),
        Row("index, cell to first curve", "s", column("curve"), target=("ours", 3.0)),
        Row("index, cell to first lanes", "s", column("lanes")),
        Row("index, cores that the page uses", "cores", column("cores")),
    ]


def _round():
    from playwright.sync_api import sync_playwright

    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as home,
        serving(Path(folder), Path(home)) as lab,
        sync_playwright() as playwright,
    ):
        index = nbformat.read(ROOT / "book" / "index.ipynb", as_version=4)
        index.cells = [index.cells[1], nbformat.v4.new_code_cell("print(panel.wait().other_programs)")]
        nbformat.write(index, Path(folder, "index.ipynb"))
        page = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS).new_page()
        page.set_viewport_size({"width": 1280, "height": 720})
        open_notebook(page, lab, "index.ipynb")
        page.click(".jp-CodeCell >> nth=0 >> .jp-InputPlaceholder")  # the collapsed cell
        page.keyboard.press("Escape")
        page.evaluate(_WATCH)
        page.keyboard.press("Control+Enter")
        until(lambda: page.locator(".d2lite", has_text="Finished").count(), 600, every=1)
        seen = page.evaluate("seen")
        run_cell(page, 1)
        return seen | {"cores": float(page.locator(".jp-CodeCell >> nth=1 >> .jp-OutputArea-output").inner_text())}
