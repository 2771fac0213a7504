"""What a learner's hands do in JupyterLab, as functions of a page.

A page lags behind the kernel, and behind a test: each function waits until what it did can be seen. A test does the
same: it waits for a state by `until` or `settled`, and never reads one right after an action.
"""

import json
import time

__all__ = [
    "cell_prompt",
    "control",
    "errors",
    "focused",
    "idle",
    "move",
    "open_notebook",
    "points",
    "press",
    "rows",
    "run_all",
    "run_cell",
    "save",
    "save_and_reload",
    "set_number",
    "settled",
    "start_run_all",
    "until",
    "write",
]

SLOW_S = 240  # what is drawn at once on a quiet machine may take this long on one that runs other tests


def write(path, *cells):
    """Write a notebook of code cells."""
    import nbformat

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in cells])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, path)


def open_notebook(page, lab, name):
    """Open a notebook and wait until its kernel is there."""
    page.goto(f"{lab.url}/lab/tree/{name}?reset&token={lab.token}")  # reset: no tabs of an earlier test
    _wait_for_notebook(page)


def _wait_for_notebook(page):
    """Wait for the cells, and for the kernel to be shown as idle: before, there is none, and Run asks for one."""
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")
    page.wait_for_selector('.jp-StatusBar-TextItem:has-text("| Idle")', state="attached")
    idle(page)


def idle(page, seconds=SLOW_S):
    """Wait until the kernel has nothing to do."""
    page.wait_for_selector('.jp-Notebook-ExecutionIndicator[data-status="idle"]', timeout=seconds * 1000)


def start_run_all(page):
    """Run all cells by the menu, once more if the menu was built anew under the mouse; they are marked as running."""

    def started():
        return any(prompt != "[ ]:" for prompt in _prompts(page))

    for _ in range(3):
        page.click('.lm-MenuBar-itemLabel:text-is("Run")')
        page.click('.lm-Menu-itemLabel:text-is("Run All Cells")')
        try:
            return until(started, 20)
        except TimeoutError:
            page.keyboard.press("Escape")
    raise TimeoutError("Run All Cells ran nothing")


def run_all(page, seconds=240):
    """Run all cells of a notebook that has not run yet by the menu, and wait for the last."""
    start_run_all(page)

    waits_since = [0.0]  # when the last cell has ended, while others have not run: after an error none does

    def ended():
        prompts = _prompts(page)
        left = [n for n, prompt in enumerate(prompts) if prompt == "[ ]:"]
        if "[*]:" in prompts or not left:
            waits_since[0] = 0.0
            return "[*]:" not in prompts
        waits_since[0] = waits_since[0] or time.monotonic()
        assert time.monotonic() - waits_since[0] < 20, f"cells {left} did not run: {errors(page)}"
        return False

    until(ended, seconds)
    idle(page)


def run_cell(page, n, seconds=SLOW_S):
    """Run the n-th code cell by the keyboard, and wait until it has ended."""
    before = cell_prompt(page, n)
    page.click(f".jp-CodeCell >> nth={n} >> .cm-content")
    page.keyboard.press("Control+Enter")
    until(lambda: cell_prompt(page, n) not in (before, "[*]:", "[ ]:"), seconds)
    idle(page)


def cell_prompt(page, n):
    """What stands before the n-th code cell: "[ ]:", "[*]:" or "[3]:"."""
    return page.locator(f".jp-CodeCell >> nth={n} >> .jp-InputPrompt").inner_text().strip()


def save(page, is_saved):
    """Save the notebook until is_saved() sees it in the file, and return what it returned."""

    def saved():
        page.keyboard.press("Control+S")
        return is_saved()

    return until(saved, every=1)


def save_and_reload(page, path):
    """Save a notebook, with the output of each cell that has run, and load the page again."""
    ran = sum(bool(text.strip("[]: *")) for text in _prompts(page))
    shown = page.locator(".jp-Notebook .jp-CodeCell:has(.jp-OutputArea-output)").count()

    def is_saved():
        try:
            kept = [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
        except ValueError:  # half written
            return False
        if sum(bool(cell["execution_count"]) for cell in kept) < ran:
            return False
        return sum(bool(cell["outputs"]) for cell in kept) >= shown

    save(page, is_saved)
    page.reload()
    _wait_for_notebook(page)
    page.wait_for_selector(".jp-Notebook .jp-CodeCell .jp-OutputArea-output")


def _prompts(page):
    """The prompts of all code cells that hold something."""
    script = """() => [...document.querySelectorAll('.jp-Notebook .jp-CodeCell')].filter(
        cell => cell.querySelector('.cm-content')?.textContent.trim()).map(
        cell => cell.querySelector('.jp-InputPrompt')?.textContent.trim() ?? '[ ]:')"""
    return page.evaluate(script) or ["[ ]:"]


def errors(page):
    """The texts of error outputs."""
    return page.locator('.jp-OutputArea-output [data-mime-type="application/vnd.jupyter.error"]').all_inner_texts()


def until(condition, seconds=SLOW_S, every=0.1):
    """Return the first true value of condition(); raises TimeoutError."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(every)
    raise TimeoutError(f"not true within {seconds} s")


def settled(read, seconds=SLOW_S, still_s=1.0):
    """Return read() once it has given something, and the same, for `still_s`: the page draws no more."""
    end, last, since = time.monotonic() + seconds, None, time.monotonic()
    while time.monotonic() < end:
        value = read()
        if value != last or not value:
            last, since = value, time.monotonic()
        elif time.monotonic() - since >= still_s:
            return value
        time.sleep(0.1)
    raise TimeoutError(f"still changing after {seconds} s: {last}")


def focused(page):
    """The text of what has the keyboard."""
    return page.evaluate("document.activeElement.textContent")


def move(page, name, key, times=1):
    """Move the slider of a parameter by the keyboard; a press that the page lost is given again."""
    handle = control(page, name).locator(".noUi-handle")
    for _ in range(times):
        before = handle.get_attribute("aria-valuenow")
        for _ in range(3):
            handle.press(key)
            try:
                until(lambda: handle.get_attribute("aria-valuenow") != before, 3, 0.02)  # noqa: B023
                break
            except TimeoutError:
                pass
        else:
            if key not in ("Home", "End"):  # there, it may have been at that end
                raise TimeoutError(f"{key} moved nothing from {before}")


def set_number(page, name, value):
    """Type a number next to the slider of a parameter, again if the page lost the keys in the meantime."""
    readout = control(page, name).locator(".widget-readout")

    def typed():
        readout.click()
        page.keyboard.press("Control+A")
        page.keyboard.type(str(value))
        page.keyboard.press("Enter")
        try:
            return float(readout.inner_text()) == value
        except ValueError:  # half typed
            return False

    until(typed)


def control(page, name):
    """The control of a parameter."""
    return page.locator(f'.d2lite .widget-inline-hbox:has(.widget-label:text-is("{name}"))').first


def press(page, text):
    """Press a button of the panel, as soon as it can be pressed."""
    page.click(f'.d2lite button.jupyter-button:has-text("{text}")')


def points(page):
    """The points of each curve on the page: [{name, x, y}]; none while the figure is drawn anew."""
    script = """() => JSON.stringify((document.querySelector('.d2lite .js-plotly-plot')?._fullData ?? []).map(
        t => ({name: t.name, x: Array.from(t.x ?? []), y: Array.from(t.y ?? [])})))"""
    return json.loads(page.evaluate(script))


def rows(page):
    """The table of runs, a list of texts a row, the heads first."""
    script = """() => [...document.querySelectorAll('.d2lite table tr:not(:has([colspan]))')].map(
        row => [...row.children].map(cell => cell.textContent.trim()))"""
    return page.evaluate(script)
