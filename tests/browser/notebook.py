"""What a learner's hands do in JupyterLab, as functions of a page."""

import json
import time

__all__ = [
    "control",
    "errors",
    "open_notebook",
    "points",
    "press",
    "rows",
    "run_all",
    "save_and_reload",
    "set_number",
    "start_run_all",
    "step",
    "until",
    "write",
]


def write(path, *cells):
    """Write a notebook of code cells."""
    import nbformat

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in cells])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, path)


def open_notebook(page, lab, name):
    """Open a notebook and wait until its kernel is there."""
    page.goto(f"{lab.url}/lab/tree/{name}?reset&token={lab.token}")  # reset: no tabs of an earlier test
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")
    page.wait_for_selector('.jp-StatusBar-TextItem:has-text("| Idle")')  # before, there is none, and Run asks for one
    idle(page)


def idle(page, seconds=60):
    """Wait until the kernel has nothing to do."""
    page.wait_for_selector('.jp-Notebook-ExecutionIndicator[data-status="idle"]', timeout=seconds * 1000)


def start_run_all(page):
    """Run all cells by the menu."""
    page.click('.lm-MenuBar-itemLabel:text-is("Run")')
    page.click('.lm-Menu-itemLabel:text-is("Run All Cells")')


def run_all(page, seconds=240):
    """Run all cells by the menu and wait for the last."""
    start_run_all(page)
    until(lambda: _prompts(page) and not any(p in ("[*]:", "[ ]:") for p in _prompts(page)), seconds)
    idle(page)


def save_and_reload(page, path):
    """Save a notebook, with the output of each cell that has run, and load the page again."""
    ran = sum(bool(text and text.strip("[]: ")) for text in _prompts(page))
    shown = page.locator(".jp-Notebook .jp-CodeCell:has(.jp-OutputArea-output)").count()

    def saved():
        page.keyboard.press("Control+S")
        try:
            kept = [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
        except ValueError:  # half written
            return False
        if sum(bool(cell["execution_count"]) for cell in kept) < ran:
            return False
        return sum(bool(cell["outputs"]) for cell in kept) >= shown

    until(saved, every=0.5)
    page.reload()
    page.wait_for_selector(".jp-Notebook .jp-CodeCell .jp-OutputArea-output")


def _prompts(page):
    """The prompts of all code cells that hold something."""
    script = """() => [...document.querySelectorAll('.jp-Notebook .jp-CodeCell')].filter(
        cell => cell.querySelector('.cm-content')?.textContent.trim()).map(
        cell => cell.querySelector('.jp-InputPrompt')?.textContent.trim())"""
    return page.evaluate(script)


def errors(page):
    """The texts of error outputs."""
    return page.locator('.jp-OutputArea-output [data-mime-type="application/vnd.jupyter.error"]').all_inner_texts()


def until(condition, seconds=60, every=0.1):
    """Return the first true value of condition(); raises TimeoutError."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(every)
    raise TimeoutError(f"not true within {seconds} s")


def step(page, name, key, times=1):
    """Move the slider of a parameter by the keyboard."""
    handle = control(page, name).locator(".noUi-handle")
    handle.focus()
    for _ in range(times):
        handle.press(key)


def set_number(page, name, value):
    """Type a number next to the slider of a parameter, again if the page lost the keys in the meantime."""
    readout = control(page, name).locator(".widget-readout")

    def typed():
        readout.click()
        page.keyboard.press("Control+A")
        page.keyboard.type(str(value))
        page.keyboard.press("Enter")
        return float(readout.inner_text()) == value

    until(typed)


def control(page, name):
    """The control of a parameter."""
    return page.locator(f'.d2lite .widget-inline-hbox:has(.widget-label:text-is("{name}"))').first


def press(page, text):
    """Press a button of the panel."""
    page.click(f'.d2lite button.jupyter-button:has-text("{text}")')


def points(page):
    """The points of each curve on the page: [{name, x, y}]."""
    script = """() => JSON.stringify((document.querySelector('.d2lite .js-plotly-plot')?._fullData ?? []).map(
        t => ({name: t.name, x: Array.from(t.x ?? []), y: Array.from(t.y ?? [])})))"""
    return json.loads(page.evaluate(script))


def rows(page):
    """The table of runs, a list of texts a row, the heads first."""
    script = """() => [...document.querySelectorAll('.d2lite table tr:not(:has([colspan]))')].map(
        row => [...row.children].map(cell => cell.textContent.trim()))"""
    return page.evaluate(script)
