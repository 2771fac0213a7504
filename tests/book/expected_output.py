"""What the cells tagged `nbval-check-output` print, kept here so that no page shows an answer before its cell has run.

What a cell displays with a text for pages without HTML (a table, a card) counts as printed text.

A plugin of pytest: with `-p tests.book.expected_output`, nbval compares these cells with
`tests/book/expected_output/`. With `--store-expected-output` as well, what they print now is stored there instead.
"""

import json
from pathlib import Path

import nbformat
import pytest

__all__ = ["BOOK", "KEPT", "as_printed", "expected_output", "is_compared"]

BOOK = Path(__file__).resolve().parents[2] / "book"
KEPT = Path(__file__).with_suffix("")


def is_compared(cell):
    """Whether what this cell prints is compared."""
    return "nbval-check-output" in cell.metadata.get("tags", [])


def kept_in(notebook):
    """The file that holds the expected output of a notebook of the book."""
    return KEPT / notebook.relative_to(BOOK).with_suffix(".json")


def expected_output(notebook):
    """Return {cell id: the text that the cell prints} of a notebook, empty if no cell of it is compared."""
    kept = kept_in(notebook)
    if not kept.exists():
        return {}
    return {name: "\n".join(lines) for name, lines in json.loads(kept.read_text(encoding="utf-8")).items()}


def store(notebook, printed):
    """Keep {cell id: text} as the expected output of a notebook, line by line, so that a change is readable."""
    kept = kept_in(notebook)
    kept.parent.mkdir(parents=True, exist_ok=True)
    lines = {name: text.split("\n") for name, text in printed.items()}
    kept.write_text(json.dumps(lines, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def compared_cells(items):
    """Yield nbval's items of cells of the book whose output is compared."""
    for item in items:
        if hasattr(item, "cell") and is_compared(item.cell) and item.path.is_relative_to(BOOK):
            yield item


def as_printed(outputs):
    """Return the outputs of a cell, those that it displays with a text joined to what it prints."""
    texts, others = [], []
    for output in outputs:
        if output.output_type == "stream" and output.name == "stdout":
            texts.append(output.text)
        elif "text/html" in output.get("data", {}):
            texts.append(output.data.get("text/plain", "") + "\n")
        else:
            others.append(output)
    return [nbformat.v4.new_output("stream", name="stdout", text="".join(texts)), *others] if texts else others


def pytest_addoption(parser):
    parser.addoption("--store-expected-output", action="store_true", help="store what the compared cells print now")


def pytest_collection_modifyitems(config, items):
    storing = config.getoption("--store-expected-output")
    for item in compared_cells(items):
        text = expected_output(item.path).get(item.cell.id)
        if not storing and text is None:
            raise pytest.UsageError(f"{item.path.name}, cell {item.cell.id}: no expected output is stored")
        if not storing:
            item.cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=text)]
            item.cell.execution_count = 1  # nbval compares no cell without one
            compare = item.compare_outputs
            item.compare_outputs = lambda test, ref, *rest, compare=compare: compare(as_printed(test), ref, *rest)


def pytest_runtest_teardown(item):
    if not item.config.getoption("--store-expected-output") or not list(compared_cells([item])):
        return
    outputs = as_printed(item.test_outputs)
    kinds = [output.output_type for output in outputs]
    if kinds != ["stream"]:
        raise ValueError(f"{item.path.name}, cell {item.cell.id}: expected one printed text, got {kinds}")
    # cells that are no longer there, or no longer compared, are left out
    compared = [cell.id for cell in nbformat.read(item.path, as_version=4).cells if is_compared(cell)]
    printed = expected_output(item.path) | {item.cell.id: outputs[0].text}
    store(item.path, {name: printed[name] for name in compared if name in printed})
