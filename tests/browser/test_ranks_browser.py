"""Real ranks behind a panel, and the fault lab, as a learner drives them in JupyterLab."""

import psutil
import pytest
from notebook import errors, open_notebook, points, press, rows, run_all, set_number, until, write

from benchmarks.leaks import of_a_pool
from d2lite.labs.chapter_07.faults import FAULTS

DDP = """
from d2lite import Panel
from d2lite.training.ddp import train_ddp
from d2lite.workers import Workers

pools = {}


def train(num_gpus, batch_size, lr, num_epochs):
    if num_gpus not in pools:
        pools[num_gpus] = Workers(num_gpus)
    return pools[num_gpus].run(train_ddp, batch_size, lr, num_epochs, 2_000)[0]


panel = Panel(train, num_gpus=2, batch_size=64, lr=0.1, num_epochs=3)
panel.controls["num_epochs"].max = 500
panel
"""


def ranks(lab):
    """The ranks below a server, and what watches them."""
    found = []
    for process in psutil.Process(lab.pid).children(recursive=True):
        try:
            if of_a_pool(process.cmdline()):
                found.append(process)
        except psutil.NoSuchProcess:
            pass
    return found


@pytest.mark.slow
def test_the_panel_trains_on_real_ranks_and_stop_ends_them(lab, page):
    write(lab.folder / "ddp.ipynb", DDP)
    open_notebook(page, lab, "ddp.ipynb")
    run_all(page)
    press(page, "Train")
    until(lambda: len(rows(page)) == 2 and "finished" in rows(page)[1], 240)
    (curve,) = until(lambda: [c for c in points(page) if c["x"] == [1, 2, 3]])
    assert curve["y"][-1] > 0.3  # ten classes: 0.1 is chance
    until(lambda: len(ranks(lab)) == 3, 10)  # the starter and its two ranks
    set_number(page, "num_epochs", 500)  # longer than any page needs to show it
    press(page, "Train")
    until(lambda: "running" in rows(page)[-1])
    until(lambda: len(points(page)) == 2 and all(c["x"] for c in points(page)))
    press(page, "Stop")
    until(lambda: "stopped" in rows(page)[-1] and len(rows(page)) == 3)
    until(lambda: not ranks(lab), 20)
    assert errors(page) == [] and page.errors == []


@pytest.mark.slow
def test_the_fault_lab_names_the_rank(lab, page):
    write(lab.folder / "faults.ipynb", "from d2lite.labs.chapter_07 import FaultLab\nlab = FaultLab(timeout_s=3)\nlab")
    open_notebook(page, lab, "faults.ipynb")
    run_all(page)
    for fault, words in (("kill", "rank 1 died (SIGKILL)"), ("NaN", "not finite to step 3")):
        option = next(name for name in FAULTS if name.startswith(fault))
        page.locator(".d2lite .widget-dropdown select").select_option(label=option)
        press(page, "Run")
        until(lambda: words in page.locator(".d2lite").first.inner_text())  # noqa: B023
    assert errors(page) == [] and page.errors == []
