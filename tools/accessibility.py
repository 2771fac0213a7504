"""What axe-core finds in the outputs of chapters: `python -m tools.accessibility --book book 01 02`.

Each chapter runs once in JupyterLab, in quick mode, from a copy of the book. With the page open, axe-core reads its
outputs in the light theme and then in the dark one. A table tells how many findings of which severity there were.
Needed are Chromium and the packages of the extra `test`. `PYTHONPATH=OTHER` takes d2lite from another checkout.
"""

import argparse
import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tools.cluster.hosts import free_port
from tools.local_server import is_up

__all__ = ["GRAVE", "SEVERITIES", "THEMES", "Finding", "Reading", "main", "read_outputs", "table"]

SEVERITIES = ("critical", "serious", "moderate", "minor")
GRAVE = SEVERITIES[:2]
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
OUTPUTS = ".jp-Notebook .jp-CodeCell .jp-OutputArea-output"
SETTINGS = {
    "apputils-extension/notification": '{"fetchNews": "false", "checkForUpdates": false}',
    "notebook-extension/tracker": '{"windowingMode": "none"}',  # cells out of sight stay on the page
}
# JupyterLab's body is 0 pixels high and hides what overflows: axe held all texts for unseen, and skipped their colours
_AXE = """async (selector) => {
    document.body.style.height = '100vh';
    const found = await axe.run(selector, {resultTypes: ['violations', 'passes'], preload: false});
    const cells = [...document.querySelectorAll('.jp-Notebook .jp-CodeCell')];
    const texts = [...found.violations, ...found.passes].filter(rule => rule.id === 'color-contrast');
    const told = found.violations.flatMap(rule => rule.nodes.map(node => {
        const cell = document.querySelector(node.target[0])?.closest('.jp-CodeCell');
        return [rule.impact, rule.id, cells.indexOf(cell), node.target.join(' '), node.html];
    }));
    return [texts.reduce((sum, rule) => sum + rule.nodes.length, 0), told];
}"""
_STATE = """() => {
    const cells = jupyterapp.shell.currentWidget?.content?.widgets ?? [];
    const code = cells.filter(cell => cell.model.type === 'code' && cell.model.sharedModel.source.trim());
    return [code.length, code.filter(cell => cell.model.executionCount).length, document.querySelectorAll('*').length];
}"""


class Finding(NamedTuple):
    """One element that breaks one of axe's rules."""

    severity: str
    rule: str
    cell: int  # which of the notebook's code cells, from 0
    where: str  # a CSS selector
    html: str


class Reading(NamedTuple):
    """What axe found, and where it looked: no findings in no outputs, or among no texts, say nothing."""

    outputs: int
    texts: int  # whose colours were compared with those behind them
    findings: list[Finding]


def read_outputs(page: Any, selector: str = OUTPUTS) -> Reading:
    """Run axe-core on the parts of a JupyterLab page that the selector names: once for all of them.

    The page is as tall as its notebook meanwhile, because axe passes over colours of what is scrolled out of sight.
    """
    from axe_playwright_python.base import AXE_SCRIPT

    before, scrolling = page.viewport_size, "document.querySelector('.jp-WindowedPanel-outer')"
    height = page.evaluate(f"{scrolling}.scrollHeight") + 300  # menu, tool bar and status bar
    page.set_viewport_size({"width": before["width"], "height": height})
    page.wait_for_function("height => document.querySelector('#main').clientHeight === height", arg=height)
    page.evaluate(f"{scrolling}.scrollTo(0, 0)")
    page.wait_for_timeout(1000)  # colours of a theme change in steps
    page.evaluate(AXE_SCRIPT)
    texts, found = page.evaluate(_AXE, selector)
    outputs = page.locator(f"{selector} >> visible=true").count()
    page.set_viewport_size(before)
    return Reading(outputs, texts, [Finding(*one) for one in found])


def table(found: dict[str, dict[str, Reading | str]]) -> str:
    """Return a Markdown table: a row for each chapter and theme, with the number of findings of each severity.

    Args:
        found: {chapter: {theme: what was read, or in words why nothing was}}.
    """
    head = ["chapter", "theme", "outputs", "texts", *SEVERITIES, "rules"]
    lines = [head, ["---"] * len(head)]
    for chapter, themes in found.items():
        for theme, reading in themes.items():
            if isinstance(reading, str):
                lines.append([chapter, theme, *[""] * (len(head) - 3), reading])
                continue
            worst_first = sorted(reading.findings, key=lambda finding: SEVERITIES.index(finding.severity))
            severities = Counter(finding.severity for finding in worst_first)
            rules = Counter(finding.rule for finding in worst_first)
            numbers = [str(severities[severity]) for severity in SEVERITIES]
            told = ", ".join(f"{rule} {count}" for rule, count in rules.items()) or "none"
            lines.append([chapter, theme, str(reading.outputs), str(reading.texts), *numbers, told])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(arguments: list[str] | None = None) -> int:
    """Print the table and each grave finding; return 1 if there is one, or if a chapter could not be read."""
    parser = argparse.ArgumentParser(description="Run axe-core on the outputs of chapters in JupyterLab.")
    parser.add_argument("--book", type=Path, default=Path("book"), help="the folder of the notebooks")
    parser.add_argument("--theme", action="append", choices=THEMES, help="of the page; may be repeated; default: both")
    parser.add_argument("--seconds", type=float, default=600, help="how long a chapter may run")
    parser.add_argument("chapters", nargs="*", metavar="CHAPTER", help="how its file name begins; default: all")
    given = parser.parse_args(arguments)
    names = [path.name for path in sorted(given.book.glob("*.ipynb"))]
    if given.chapters:
        names = [name for name in names if name.startswith(tuple(given.chapters))]
    if not names:
        parser.error(f"expected notebooks in {given.book}, got none that begins with {given.chapters or 'anything'}")
    found: dict[str, dict[str, Reading | str]] = {}
    with _server(given.book.resolve()) as address, _chromium() as browser:
        for name in names:
            began = time.monotonic()
            found[name] = _read(browser, address, name, given.theme or list(THEMES), given.seconds)
            print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print(table(found))
    readings = [(name, theme, reading) for name, themes in found.items() for theme, reading in themes.items()]
    grave = [
        (f"{name}, {theme}", finding)
        for name, theme, reading in readings
        if not isinstance(reading, str)
        for finding in reading.findings
        if finding.severity in GRAVE
    ]
    for place, (severity, rule, cell, where, html) in grave:
        print(f"{place}, code cell {cell + 1}: {severity} {rule}\n    {where}\n    {html[:300]}")
    return int(bool(grave) or any(isinstance(reading, str) for _, _, reading in readings))


def _read(browser: Any, address: str, name: str, themes: list[str], seconds: float) -> dict[str, Reading | str]:
    """Run a notebook, and return what axe finds in each theme, or why it could not be asked."""
    from playwright.sync_api import Error

    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.set_default_timeout(120_000)
    try:
        page.goto(address % name)
        page.wait_for_function("() => window.jupyterapp?.shell?.currentWidget?.content?.widgets?.length")
        page.evaluate("() => jupyterapp.restored.then(() => jupyterapp.shell.currentWidget.sessionContext.ready)")
        page.evaluate("() => { jupyterapp.commands.execute('notebook:run-all-cells'); }")
        ran, cells = _wait_for_outputs(page, seconds)
        if ran < cells:
            return dict.fromkeys(themes, f"not read: {ran} of {cells} cells ran within {seconds:.0f} s")
        found: dict[str, Reading | str] = {}
        for theme in themes:
            page.evaluate("name => jupyterapp.commands.execute('apputils:change-theme', {theme: name})", THEMES[theme])
            is_light = "true" if theme == "light" else "false"
            page.wait_for_function(f"() => document.body.dataset.jpThemeLight === '{is_light}'")
            found[theme] = read_outputs(page)
        return found
    except Error as error:
        return dict.fromkeys(themes, f"not read: {str(error).splitlines()[0]}")
    finally:
        with contextlib.suppress(Error):
            page.evaluate("() => jupyterapp.serviceManager.sessions.shutdownAll()")
        page.close()


def _wait_for_outputs(page: Any, seconds: float) -> tuple[int, int]:
    """Wait until all cells have run and the page draws no more; return how many have run, of how many."""
    end, last, since = time.monotonic() + seconds, None, time.monotonic()
    while True:
        state = cells, ran, _ = page.evaluate(_STATE)
        if state != last:
            last, since = state, time.monotonic()
        if (ran == cells and time.monotonic() - since > 5) or time.monotonic() > end:
            return ran, cells
        page.wait_for_timeout(500)


@contextlib.contextmanager
def _server(book: Path) -> Iterator[str]:
    """Start JupyterLab on a copy of the book; yield the address of a notebook, with %s for its name."""
    with tempfile.TemporaryDirectory(prefix="d2lite-accessibility-") as folder:
        home, copy = Path(folder) / "home", Path(folder) / "book"
        shutil.copytree(book, copy, ignore=shutil.ignore_patterns(".*", "__pycache__", "d2lite-ledger.json*"))
        for beside in ("benchmarks", "tools"):  # chapters read results and scripts there
            if (book.parent / beside).is_dir():
                (Path(folder) / beside).symlink_to(book.parent / beside)
        for path, text in SETTINGS.items():
            file = home / "JUPYTERLAB_SETTINGS_DIR" / "@jupyterlab" / f"{path}.jupyterlab-settings"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        own = ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR")
        env = os.environ | {name: str(home / name) for name in (*own, "IPYTHONDIR")}
        env |= {"D2LITE_QUICK": "1", "D2LITE_LEDGER": "off"}
        env["PYTHONPATH"] = env.get("PYTHONPATH") or str(Path(__file__).resolve().parents[1])
        port, token = free_port(), secrets.token_hex(16)
        command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1"]
        command += [f"--port={port}", "--ServerApp.port_retries=0"]
        env["JUPYTER_TOKEN"] = token  # not among the arguments, which other users of the machine see
        command += ["--LabApp.expose_app_in_browser=True", str(copy)]
        with open(home / "log.txt", "w") as log:
            server = subprocess.Popen(command, env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            if not is_up(server, f"http://127.0.0.1:{port}/api/status?token={token}"):
                raise SystemExit(f"JupyterLab did not come up:\n{(home / 'log.txt').read_text()[-2000:]}")
            yield f"http://127.0.0.1:{port}/lab/tree/%s?reset&token={token}"
        finally:
            server.terminate()  # it ends its kernels
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


@contextlib.contextmanager
def _chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        raise SystemExit(f"Chromium not found, looked for {', '.join(names)}: install it with the system's packages")
    arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        yield browser
        browser.close()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that server and browser end as well
    raise SystemExit(main())
