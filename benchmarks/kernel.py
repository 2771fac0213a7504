"""A Jupyter kernel of its own for what is measured in a notebook."""

import contextlib
import os
from pathlib import Path

import nbformat
from nbclient import NotebookClient

__all__ = ["run_cells", "running"]

ROOT = Path(__file__).parent.parent


@contextlib.contextmanager
def running(notebook, folder=ROOT, timeout=600, **environment):
    """Start a kernel in `folder`, hand out the nbclient for `notebook`, and end the kernel.

    `environment` is added to the kernel's; a variable given as None is taken out.
    """
    env = {name: value for name, value in {**os.environ, **environment}.items() if value is not None}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [env.get("PYTHONPATH"), str(ROOT)]))
    resources = {"metadata": {"path": str(folder)}}
    client = NotebookClient(notebook, timeout=timeout, kernel_name="python3", resources=resources)
    client.extra_arguments = ["--log-level=40"]  # errors only
    with client.setup_kernel(env=env):
        yield client


def run_cells(cells, **environment):
    """Run code cells in a fresh kernel and return what the last of them printed."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in cells])
    with running(notebook, **environment) as client:
        for i, cell in enumerate(notebook.cells):
            client.execute_cell(cell, i)
    return "".join(out.text for out in notebook.cells[-1].outputs if out.get("name") == "stdout")
