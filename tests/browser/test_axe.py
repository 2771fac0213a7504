"""axe-core on what the kit shows in JupyterLab, light and dark: nothing serious and nothing critical in the outputs."""

from textwrap import dedent

import pytest
from notebook import errors, open_notebook, run_all, settled, until, write

from tools.accessibility import GRAVE, THEMES, read_outputs

SHOWN = {
    "panel": """
        from d2lite import Panel, train
        panel = Panel(train, num_gpus=2, lr=0.1, batch_size=64, num_epochs=2, fixed={"num_examples": 1000})
        panel""",
    "panel, trained": "panel.train.click(); panel.wait()",
    "scaling explorer": """
        from d2lite.labs.chapter_08 import ScalingExplorer
        ScalingExplorer(k=8)""",
    "partition explorer": """
        from d2lite.labs.chapter_01 import PartitionExplorer
        PartitionExplorer()""",
    "stepper": """
        from d2lite.labs.chapter_04 import CollectiveStepper
        stepper = CollectiveStepper("ring", 4)
        stepper.step.value = 2
        stepper""",
    "predict": """
        from d2lite import Predict
        number = Predict("How many times as fast as one device are two?", unit="×", key="9.1")
        choice = Predict("Are the replicas equal?", choices=["bit for bit", "up to rounding", "no"], key="9.2")
        display(number, choice)""",
    "predict, answered": """
        answered = Predict("And three?", unit="×", key="9.3")
        answered.commit(2.5)
        answered.reveal(2.1, on="3 replicas on 2 CPU cores")
        answered""",
    "fault lab": """
        from d2lite.labs.chapter_07 import FaultLab
        lab = FaultLab()
        lab.results.append(("kill: one rank is killed", 5.0, 0.25, "rank 1 died (SIGKILL)"))
        lab._table.value = lab._rows()
        lab""",
    "figure": """
        from d2lite.labs.chapter_04 import collective_figure, trace_collective
        collective_figure(trace_collective("all_reduce", "tree", 4), 2)""",
    "ledger": """
        from IPython.display import HTML
        from d2lite import figures, read_ledger
        HTML(figures.ledger_html(read_ledger(), {}))""",
    "fair comparison": """
        from d2lite.labs.chapter_09 import FairComparison
        FairComparison()""",
    "museum": """
        from d2lite.exercises import EXHIBITS
        from d2lite.labs.chapter_11 import Museum
        Museum(EXHIBITS)""",
    "whodunit": """
        from d2lite.labs.chapter_12 import Whodunit
        Whodunit(3, seed=0)""",
    "hint": """
        from d2lite.exercises import check
        check("1.1", lambda *arguments: 0)""",
}


def change_theme(page, theme):
    """Choose a theme in the menu of the open page, again if the menu was built anew under the mouse."""

    def is_on():
        return page.evaluate("document.body.dataset.jpThemeName") == THEMES[theme]

    def chosen():
        if is_on():
            return True
        page.keyboard.press("Escape")
        page.click('.lm-MenuBar-itemLabel:text-is("Settings")')
        page.click('.lm-Menu-itemLabel:text-is("Theme")')
        page.click(f'.lm-Menu-itemLabel:text-is("{THEMES[theme]}")')
        return until(is_on, 20)

    until(chosen)
    settled(lambda: page.evaluate("getComputedStyle(document.querySelector('.jp-Notebook')).backgroundColor"))


@pytest.mark.slow
def test_nothing_serious_and_nothing_critical_is_found(lab, page):
    pytest.importorskip("axe_playwright_python")
    write(lab.folder / "axe.ipynb", *(dedent(code).strip() for code in SHOWN.values()))
    open_notebook(page, lab, "axe.ipynb")
    run_all(page, 480)  # once for both themes: to run takes most of the time, and axe a second
    for n in range(5):  # two of the panel, two of an explorer, one of each of the others
        page.wait_for_selector(f".d2lite .js-plotly-plot >> nth={n} >> .main-svg >> nth=0", state="attached")
    until(lambda: page.locator(".d2lite-predict .widget-radio-box[role=radiogroup]").count())
    settled(lambda: page.locator(".jp-OutputArea-output *").count())
    assert not errors(page)  # on a busy machine anywidget reports small widgets that took over two seconds to load
    for n, name in enumerate(SHOWN):
        assert page.locator(f".jp-CodeCell >> nth={n} >> .jp-OutputArea-output").count(), f"{name} shows nothing"
    told = []
    for theme in THEMES:
        change_theme(page, theme)
        reading = read_outputs(page)
        assert reading.texts > 100, f"{theme}: axe compared the colours of {reading.texts} texts only"
        told += [
            f"{theme}, {list(SHOWN)[cell]}: {severity} {rule} {where}\n    {html[:200]}"
            for severity, rule, cell, where, html in reading.findings
            if severity in GRAVE
        ]
    assert not told, "\n".join(told)
