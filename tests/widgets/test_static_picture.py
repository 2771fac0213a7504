"""A notebook that is run without a page and exported: the pictures are there, plotly's code at most once."""

import html
import re

import nbformat
import pytest

nbconvert = pytest.importorskip("nbconvert")
pytestmark = pytest.mark.slow

CELLS = (
    "from d2lite import Panel\n"
    "from d2lite.labs.chapter_01 import PartitionExplorer\n"
    "from d2lite.labs.chapter_04 import CollectiveStepper, collective_figure, trace_collective\n"
    "from d2lite.labs.chapter_07 import FaultLab\n"
    "from d2lite.labs.chapter_08 import ScalingExplorer\n"
    "def train(lr=0.5, animator=None):\n"
    "    for epoch in range(1, 4):\n"
    "        animator.add(epoch, lr * epoch)\n"
    "panel = Panel(train)\npanel",
    "panel.train.click(); panel.wait();",
    'stepper = CollectiveStepper("ring", 2)\nstepper',
    "stepper.step.value = 1",
    'collective_figure(trace_collective("all_reduce", "ring", 2), 2)',
    'ways = PartitionExplorer()\nways.model.value = "SimpleCNN"\nways',
    "scaling = ScalingExplorer(k=8)\nscaling",
    "scaling.controls['k'].value = 16",
    "lab = FaultLab()\nlab",
    # as a run on ranks leaves it, without the ranks
    "lab.results.append(('kill: one rank is killed', 5.0, 0.25, 'rank 1 died <b>'))\n"
    "lab._table.value = lab._rows(); lab._static_picture.update()",
)


@pytest.fixture(scope="module")
def page():
    """The exported page."""
    from nbconvert.exporters import HTMLExporter
    from nbconvert.preprocessors import ExecutePreprocessor

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in CELLS])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    ExecutePreprocessor(timeout=120).preprocess(notebook, {})
    return HTMLExporter().from_notebook_node(notebook)[0]


def body(page):
    """What is seen, without the state of the widgets behind it."""
    return page.split('<script type="application/vnd.jupyter.widget-state+json">')[0]


def words(page):
    return [html.unescape(alt) for alt in re.findall(r'<img alt="([^"]+)"', page)]


@pytest.mark.slow
def test_the_panel_s_picture_is_that_of_its_runs(page):
    (panel,) = (alt for alt in words(page) if "accuracy" in alt or "lr 0.5" in alt)
    assert "3 points, from 0.5 at 1 to 1.5 at 3" in panel and "No data yet" not in "".join(words(page))
    assert '<td class="status">finished</td>' in body(page) and "No run yet" not in body(page)


def test_the_stepper_s_picture_is_that_of_its_step(page):
    assert sum("step 1 of 2" in alt for alt in words(page)) == 1
    assert sum("step 2 of 2" in alt for alt in words(page)) == 1  # the figure of the last cell
    assert page.count("data:image/svg+xml;base64,") >= 3


def test_the_explorers_pictures_are_those_of_their_controls(page):
    (ways,) = (alt for alt in words(page) if alt.startswith("Bytes sent in one iteration"))
    assert "pipeline parallelism, " in ways and ways.count("parallelism") == 3
    (efficiency,) = (alt for alt in words(page) if alt.startswith("efficiency, predicted"))
    (step,) = (alt for alt in words(page) if alt.startswith("where a step goes"))
    assert " at 16" in efficiency and ". 16 GPUs: " in step and "8 GPUs" not in step


def test_the_fault_lab_s_table_is_there(page):
    assert "rank 1 died &lt;b&gt;" in body(page) and "<td>0.25 s</td>" in body(page)


def test_plotly_s_code_is_there_at_most_once(page):
    assert len(page) < 8_000_000  # it has 5 MB
