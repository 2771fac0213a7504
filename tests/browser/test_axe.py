"""axe-core on what the kit shows in JupyterLab, light and dark: nothing serious and nothing critical in the outputs."""

import pytest
from notebook import errors, open_notebook, run_all, settled, until, write

SHOWN = {
    "panel": """
        from d2lite import Panel, train
        panel = Panel(train, num_gpus=2, lr=0.1, batch_size=64, num_epochs=2, fixed={"num_examples": 1000})
        panel""",
    "panel, trained": "panel.train.click(); panel.wait()",
    "scaling explorer": """
        from d2lite import ScalingExplorer
        ScalingExplorer(k=8)""",
    "partition explorer": """
        from d2lite import PartitionExplorer
        PartitionExplorer()""",
    "stepper": """
        from d2lite import CollectiveStepper
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
        from d2lite import FaultLab
        lab = FaultLab()
        lab.results.append(("kill: one rank is killed", 5.0, 0.25, "rank 1 died (SIGKILL)"))
        lab._table.value = lab._rows()
        lab""",
    "figure": """
        from d2lite import figures
        from d2lite.widgets import trace_collective
        figures.collective_figure(trace_collective("all_reduce", "tree", 4), 2)""",
    "ledger": """
        from IPython.display import HTML
        from d2lite import read_ledger
        HTML(figures.ledger_html(read_ledger(), {}))""",
}


def without_indent(code):
    return "\n".join(line[8:] if line.startswith(" " * 8) else line for line in code.strip("\n").splitlines())


def findings(page, selector):
    """What axe-core finds inside `selector`: [(impact, rule, where, the page's text of the node)]."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page, selector).response["violations"]
    return [
        (rule["impact"], rule["id"], " ".join(map(str, node["target"])), node["html"])
        for rule in found
        for node in rule["nodes"]
    ]


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["Light"])
def test_nothing_serious_and_nothing_critical_is_found(lab, page, theme):
    lab.theme(theme)
    write(lab.folder / f"axe-{theme}.ipynb", *map(without_indent, SHOWN.values()))
    open_notebook(page, lab, f"axe-{theme}.ipynb")
    lab.theme("Light")  # of the tests to come
    run_all(page, 480)
    for n in range(5):  # two of the panel, two of an explorer, one of each of the others
        page.wait_for_selector(f".d2lite .js-plotly-plot >> nth={n} >> .main-svg >> nth=0", state="attached")
    until(lambda: page.locator(".d2lite-predict .widget-radio-box[role=radiogroup]").count())
    settled(lambda: page.locator(".jp-OutputArea-output *").count())
    assert not errors(page)  # on a busy machine anywidget reports small widgets that took over two seconds to load
    grave = []
    for n, name in enumerate(SHOWN):
        output = f".jp-Cell:nth-child({n + 1} of .jp-CodeCell) .jp-OutputArea-output"
        assert page.locator(output).count(), f"{name} shows nothing"
        page.locator(output).first.scroll_into_view_if_needed()
        grave += [(name, *found) for found in findings(page, output) if found[0] in ("serious", "critical")]
    told = "\n".join(f"{name}: {impact} {rule} {where}\n    {html[:200]}" for name, impact, rule, where, html in grave)
    assert not grave, f"{theme}:\n{told}"
