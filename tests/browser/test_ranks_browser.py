"""Real ranks behind a panel, and the fault lab, as a learner drives them in JupyterLab."""

import psutil
from notebook import errors, open_notebook, points, press, rows, run_all, until, write

from benchmarks.leaks import of_a_pool
from d2lite.workers.faults import FAULTS

DDP = """
from d2lite import Panel
from d2lite.training.ddp import train_ddp
from d2lite.workers.pool import Workers

pools = {}


def train(num_gpus, batch_size, lr, num_epochs):
    if num_gpus not in pools:
        pools[num_gpus] = Workers(num_gpus)
    return pools[num_gpus].run(train_ddp, batch_size, lr, num_epochs, 2_000)[0]


panel = Panel(train, num_gpus=2, batch_size=64, lr=0.1, num_epochs=3)
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


def test_the_panel_trains_on_real_ranks_and_stop_ends_them(lab, page):
    write(lab.folder / "ddp.ipynb", DDP)
    open_notebook(page, lab, "ddp.ipynb")
    run_all(page)
    press(page, "Train")
    until(lambda: len(rows(page)) == 2 and "finished" in rows(page)[1], 90)
    (curve,) = points(page)
    assert curve["x"] == [1, 2, 3] and curve["y"][-1] > 0.3  # ten classes: 0.1 is chance
    assert len(ranks(lab)) == 3  # the agent and its two ranks
    press(page, "Train")
    until(lambda: len(rows(page)) == 3 and "running" in rows(page)[2], 30)
    until(lambda: len(points(page)) == 2 and points(page)[1]["x"], 60)
    press(page, "Stop")
    until(lambda: "stopped" in rows(page)[2] or "finished" in rows(page)[2], 10)
    if "stopped" in rows(page)[2]:
        until(lambda: not ranks(lab), 5)
    assert errors(page) == [] and page.errors == []


def test_the_fault_lab_names_the_rank(lab, page):
    write(lab.folder / "faults.ipynb", "from d2lite import FaultLab\nlab = FaultLab(timeout_s=3)\nlab")
    open_notebook(page, lab, "faults.ipynb")
    run_all(page)
    for fault, words in (("kill", "rank 1 died (SIGKILL)"), ("NaN", "not finite to step 3")):
        option = next(name for name in FAULTS if name.startswith(fault))
        page.locator(".widget-dropdown select").select_option(label=option)
        page.click('button.jupyter-button:has-text("Run")')
        until(lambda: words in page.locator(".jp-OutputArea-output").last.inner_text(), 60)  # noqa: B023
    assert errors(page) == [] and page.errors == []
