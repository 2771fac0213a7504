"""The shape of every chapter; that its cells run is nbval's to show (see the Makefile)."""

import ast
import re
from pathlib import Path

import nbformat
import pytest

import d2lite
from tests.book.expected_output import BOOK, KEPT, as_printed, expected_output, is_compared

ROOT = BOOK.parent
CHAPTERS = sorted(BOOK.glob("[0-9]*.ipynb"))
SOLUTIONS = sorted((BOOK / "solutions").glob("*.ipynb"))
APPENDIX = sorted((BOOK / "appendix").glob("*.ipynb"))
ALL = pytest.mark.parametrize("path", CHAPTERS + SOLUTIONS + APPENDIX, ids=lambda p: str(p.relative_to(BOOK)))
EACH_CHAPTER = pytest.mark.parametrize("path", CHAPTERS, ids=lambda p: p.stem)


def read(path):
    return nbformat.read(path, as_version=4)


def code_cells(path):
    return [cell for cell in read(path).cells if cell.cell_type == "code"]


class Untyped(ast.NodeTransformer):
    """Removes types and docstrings, also inside of functions and classes: chapters show the code without them."""

    def visit_arg(self, node):
        node.annotation = None
        return node

    def visit_AnnAssign(self, node):
        return ast.Assign([node.target], node.value) if node.value else None

    def visit_FunctionDef(self, node):
        node.returns = None
        node.decorator_list = [each for each in node.decorator_list if ast.unparse(each) != "once_differentiable"]
        return self.visit_ClassDef(node)

    def visit_ClassDef(self, node):
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:]
        return self.generic_visit(node)


def functions(source):
    """{name: syntax tree without docstrings and types} of the functions and classes at the top of some code."""
    nodes = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return {node.name: ast.dump(Untyped().visit(node)) for node in nodes}


# in functions that must equal those of a laboratory, long imports and comprehensions
LONG_LINES = 92


def test_no_more_code_lines_are_cut_at_the_right_of_a_laptop():
    """JupyterLab shows about 100 characters of a line at 1280 pixels, beside its list of files."""
    lines = [
        line for path in CHAPTERS + SOLUTIONS + APPENDIX for c in code_cells(path) for line in c.source.split("\n")
    ]
    assert sum(len(line) > 88 for line in lines) <= LONG_LINES


def kept_in_the_package():
    package, kept = Path(d2lite.__file__).parent, {}
    for path in package.rglob("*.py"):
        name = path.relative_to(package).as_posix()
        kept |= {(name, function): tree for function, tree in functions(path.read_text()).items()}
    return kept


def plain(source):
    """A cell's source with `pass` for IPython's magics, which are no Python."""
    return re.sub(r"(?m)^(\s*)%.*$", r"\1pass", source)


def test_there_are_chapters_and_a_solution_for_each():
    assert len(CHAPTERS) >= 3
    assert [p.name for p in SOLUTIONS] == [p.name for p in CHAPTERS]


@ALL
def test_no_output_is_committed(path):
    """An output in the file would answer a question on the page before its cell has run."""
    notebook = read(path)
    nbformat.validate(notebook)
    assert path.stat().st_size < 120_000
    assert "widgets" not in notebook.metadata
    assert notebook.metadata.kernelspec.name == "python3"
    assert [cell.id for cell in code_cells(path) if cell.outputs or cell.execution_count is not None] == []


@ALL
def test_each_compared_cell_has_its_expected_output(path):
    assert list(expected_output(path)) == [cell.id for cell in code_cells(path) if is_compared(cell)]


def test_a_table_or_a_card_counts_as_printed_text_and_a_figure_does_not():
    new = nbformat.v4.new_output
    table = new("display_data", {"text/html": "<table>", "text/plain": "a  b"})
    figure = new("display_data", {"image/png": "", "text/plain": "a figure"})
    outputs = [new("stream", name="stdout", text="one\n"), table, figure, new("stream", name="stderr", text="no")]
    printed, *others = as_printed(outputs)
    assert (printed.output_type, printed.text) == ("stream", "one\na  b\n") and others == outputs[2:]
    assert as_printed(outputs[2:]) == outputs[2:]


def test_make_compares_with_the_expected_output():
    """Without the plugin, nbval compares nothing: the notebooks hold no outputs."""
    assert "--nbval-lax -p tests.book.expected_output" in (ROOT / "Makefile").read_text(encoding="utf-8")
    kept = {path.relative_to(KEPT).with_suffix("") for path in KEPT.rglob("*.json")}
    assert kept <= {path.relative_to(BOOK).with_suffix("") for path in BOOK.rglob("*.ipynb")} and len(kept) > 10


@ALL
def test_cells_are_short_and_named(path):
    cells = read(path).cells
    assert len({cell.id for cell in cells}) == len(cells)
    for cell in code_cells(path):
        assert len(cell.source.splitlines()) <= 25, cell.id


@ALL
def test_the_first_code_cell_is_the_same_everywhere(path):
    first = code_cells(path)[0].source
    assert first == code_cells(CHAPTERS[0])[0].source
    assert "google.colab" in first and "enable_custom_widget_manager" in first and "%pip install" in first


@ALL
def test_what_a_cell_shows_is_not_closed_by_a_later_one(path):
    """After Run All a closed panel would be gone from the page."""
    sources = [cell.source.rstrip() for cell in code_cells(path)]
    shown = {source.rpartition("\n")[2] for source in sources}
    closed = {name for source in sources for name in re.findall(r"^(\w+)\.close\(\)", source, re.M)}
    assert not shown & closed


@EACH_CHAPTER
def test_a_chapter_has_its_parts(path):
    text = "\n".join(c.source for c in read(path).cells if c.cell_type == "markdown").lower()
    assert read(path).cells[0].source.startswith(f"# {int(path.name[:2])} ")
    parts = ["**the question.**", "**time.**", "**predict", "break", "check", "surprised us"]
    for part in [*parts, "## exercises", "## summary"]:
        assert part in text, f"{path.name} lacks {part}"
    assert "placeholder" not in text
    checks = [cell for cell in code_cells(path) if cell.id.endswith("-check") and cell.id.startswith("exercise")]
    assert len(checks) >= 2
    for cell in checks:
        name = f"{int(path.name[:2])}.{cell.id.split('-')[1]}"
        assert re.search(rf'^check\("{re.escape(name)}", \w+\)$', cell.source, re.M), cell.source


@pytest.mark.parametrize("path", APPENDIX, ids=lambda p: p.stem)
def test_an_appendix_says_to_which_chapter_it_belongs(path):
    (chapter,) = [other for other in CHAPTERS if other.name[:2] == path.name[:2]]
    title, text = read(path).cells[0].source.split("\n\n", 1)
    assert title.startswith(f"# Appendix to chapter {int(chapter.name[:2])}: ")
    assert text.startswith(f"This notebook belongs to [chapter {int(chapter.name[:2])}](../{chapter.name})")
    assert f"(appendix/{path.name})" in "".join(cell.source for cell in read(chapter).cells)


@EACH_CHAPTER
def test_solutions_pass_the_checks_of_the_chapter(path):
    solved = {cell.id: cell.source for cell in code_cells(BOOK / "solutions" / path.name)}
    for cell in code_cells(path):
        if cell.id.startswith("exercise") and cell.id.endswith("-check"):
            assert solved[cell.id] == cell.source


@ALL
def test_the_loop_that_is_read_is_the_loop_that_runs(path):
    kept = kept_in_the_package()
    shown = {}
    for cell in code_cells(path):
        shown |= functions(plain(cell.source))
    for (module, name), tree in kept.items():
        if name in shown and not name.startswith("_"):
            assert shown[name] == tree, f"{path.name} shows another {name} than d2lite/{module}"


def test_what_chapters_2_and_3_and_an_appendix_teach_is_kept():
    shown = {}
    for path in (*CHAPTERS[1:3], BOOK / "appendix" / "09-more-comparisons.ipynb"):
        for cell in code_cells(path):
            shown |= functions(plain(cell.source))
    taught = {
        "replicate", "scatter", "split_batch", "all_reduce_naive", "forward_backward", "sgd_step", "train_batch",
        "train", "lenet", "evaluate_accuracy_gpus", "train_concise",
    }  # fmt: skip
    assert taught <= shown.keys() & {name for _, name in kept_in_the_package()}


def test_the_package_does_not_know_the_book():
    for path in Path(d2lite.__file__).parent.rglob("*.py"):
        if path.name in ("__main__.py", "book.py", "labs.py", "messages.py"):  # the doors to the book
            continue
        assert ".ipynb" not in path.read_text()
        assert "book/" not in path.read_text()
