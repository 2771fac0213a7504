"""A window that was 1400 pixels wide and is 800 now: nothing that the kit shows is cut off at the side."""

from textwrap import dedent

import pytest
from notebook import errors, open_notebook, run_all, until, write

SHOWN = {
    "panel": """
        from d2lite import Panel, train
        panel = Panel(train, num_gpus=2, lr=0.1, batch_size=64, num_epochs=1, fixed={"num_examples": 240})
        for _ in range(3):  # more rows than the table's box has room for
            panel.train.click()
            panel.wait()
        panel""",
    "predict": """
        from d2lite import Predict
        choices = ["bit for bit", "up to rounding, and then further and further apart with each step", "no"]
        asked, answered = Predict("Are they equal?", choices, key="9.1"), Predict("And three?", unit="×", key="9.2")
        answered.commit(2.5)
        answered.reveal(2.1, on="3 replicas on 2 CPU cores")
        display(asked, answered)""",
    "hint": """
        from d2lite.exercises import check
        check("2.1", lambda tensors: None)
        check("2.1", lambda tensors: None)""",
    "ledger": """
        from IPython.display import HTML
        from d2lite import read_ledger
        from d2lite.figures import ledger_html
        HTML(ledger_html(read_ledger(), {"1.1": "Sixteen GPUs: what is left for each, and what to change first"}))""",
    "fair comparison": """
        from d2lite.labs.chapter_09 import FairComparison
        FairComparison(num_examples=240)""",
    "museum": """
        from d2lite.exercises import EXHIBITS
        from d2lite.labs.chapter_11 import Museum
        Museum(EXHIBITS, num_epochs=1)""",
    "divergence finder": """
        import torch
        from d2lite import lenet_params, try_gpus
        from d2lite import train_batch
        from d2lite.labs.chapter_11 import compare_replicas, record_steps
        from d2lite.labs.chapter_11 import DivergenceFinder
        bug, devices = EXHIBITS["rebinding all-reduce"], try_gpus(2)
        batches = [(torch.rand(4, 1, 28, 28), torch.arange(4))]
        run = record_steps(bug.train_batch, batches, bug.replicate(lenet_params(), devices), devices, 0.1)
        DivergenceFinder(compare_replicas(run))""",
    "whodunit": """
        from d2lite.labs.chapter_12 import Whodunit
        Whodunit(4, seed=2)""",
    "scaling explorer": """
        from d2lite.labs.chapter_08 import ScalingExplorer
        ScalingExplorer()""",
    "partition explorer": """
        from d2lite.labs.chapter_01 import PartitionExplorer
        PartitionExplorer()""",
    "stepper": """
        from d2lite.labs.chapter_04 import CollectiveStepper
        CollectiveStepper("tree", 8)""",
    "fault lab": """
        from d2lite.labs.chapter_07 import FaultLab
        lab = FaultLab()
        lab.results.append(("kill: one rank is killed", 5.0, 0.25, "rank 1 died (SIGKILL)"))
        lab._table.value = lab._rows()
        lab""",
}
# what is wider than its box: [(code cell, classes, width of the box, width of what is in it)]
TOO_WIDE = """() => [...document.querySelectorAll('.jp-Notebook .jp-CodeCell')].flatMap((cell, n) =>
    [...cell.querySelectorAll('.jp-OutputArea-output, .jp-OutputArea-output *')].filter(
        box => box.clientWidth && box.scrollWidth > box.clientWidth + 1 && getComputedStyle(box).overflowX !== 'visible'
        && !box.closest('.js-plotly-plot, pre code, .widget-radio-box')).map(
        box => [n, String(box.className), box.clientWidth, box.scrollWidth]))"""
# options of a select that are longer than its room: [(text, pixels of room, pixels)]
CUT = """() => [...document.querySelectorAll('.d2lite select')].flatMap(select => {
    const style = getComputedStyle(select), paper = document.createElement('canvas').getContext('2d');
    paper.font = style.font;
    const room = select.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    const texts = [...select.options].map(option => [option.text, room, paper.measureText(option.text).width]);
    return texts.filter(([text, room, width]) => width > room + 1);
})"""
# of the table with the runs: the top of its head, and of the box that scrolls
HEAD = """() => ['thead th', ''].map(inside =>
    document.querySelector(`.d2lite .newest ${inside}`).getBoundingClientRect().top)"""
PAGE = """() => {
    const page = document.querySelector('.jp-WindowedPanel-outer');
    return [page.clientWidth, page.scrollWidth];
}"""


@pytest.mark.slow
def test_nothing_is_cut_off_at_800_pixels(lab, page):
    write(lab.folder / "narrow.ipynb", *(dedent(code).strip() for code in SHOWN.values()))
    page.set_viewport_size({"width": 1400, "height": 900})
    open_notebook(page, lab, "narrow.ipynb")
    run_all(page, 480)
    for n in range(8):  # two of the panel and of the scaling explorer, one of each other; the stepper has none
        page.wait_for_selector(f".d2lite .js-plotly-plot >> nth={n} >> .main-svg >> nth=0", state="attached")
    page.set_viewport_size({"width": 800, "height": 900})
    page.keyboard.press("Escape")
    page.keyboard.press("Control+B")  # the list of files takes a third of such a window
    until(lambda: page.evaluate(PAGE)[0] > 600)
    try:
        until(lambda: not page.evaluate(TOO_WIDE), 40)
    except TimeoutError:
        names = list(SHOWN)
        told = [
            f"{names[n]}: {kind} is {box} wide, what is in it {inside}"
            for n, kind, box, inside in page.evaluate(TOO_WIDE)
        ]
        pytest.fail("\n".join(told))
    there, wide = page.evaluate(PAGE)
    assert wide <= there
    assert page.evaluate(CUT) == []
    head, box = page.evaluate(HEAD)
    assert head >= box - 1, "the heads of the columns have scrolled away"
    assert not errors(page)
