"""Each prediction of a chapter has a place for the answer, and what it is compared with is read from the run."""

import ast
import re

import pytest

from tests.book.test_book import CHAPTERS, code_cells, plain, read

EACH_CHAPTER = pytest.mark.parametrize("path", CHAPTERS, ids=lambda p: p.stem)


def calls(path):
    """The calls in a chapter, in their order."""
    for cell in code_cells(path):
        for node in ast.walk(ast.parse(plain(cell.source))):
            if isinstance(node, ast.Call):
                yield node


def asked(path):
    """{key: Predict(...)}; a key with a part that is computed is shown with a *."""
    found = {}
    for call in calls(path):
        if getattr(call.func, "id", "") == "Predict":
            (key,) = [keyword.value for keyword in call.keywords if keyword.arg == "key"]
            parts = key.values if isinstance(key, ast.JoinedStr) else [key]
            name = "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in parts)
            assert name not in found
            found[name] = call
    return found


@EACH_CHAPTER
def test_every_prediction_has_a_place_for_the_answer(path):
    cells = read(path).cells
    for i, cell in enumerate(cells):
        if cell.cell_type == "markdown" and "**Predict" in cell.source:
            following = [c for c in cells[i:] if c.cell_type == "code"][:2]
            assert any("Predict(" in c.source for c in following), cell.id
        assert "rite your answers down" not in cell.source and "rite them down" not in cell.source


@EACH_CHAPTER
def test_keys_are_of_the_chapter_and_there_once(path):
    keys = list(asked(path))
    assert keys and all(key.startswith(f"{int(path.name[:2])}.") for key in keys)


@EACH_CHAPTER
def test_answers_are_revealed_and_read_from_the_run(path):
    revealed = [call for call in calls(path) if getattr(call.func, "attr", "") == "reveal"]
    names = {node.id for call in revealed for node in ast.walk(call.func) if isinstance(node, ast.Name)}
    source = "\n".join(plain(cell.source) for cell in code_cells(path))
    for name in re.findall(r"^(my_\w+) = ", source, re.M):
        loop = re.search(rf"for [^\n]*\b(\w+)\b[^\n]* in [^\n]*{name}\b", source)
        assert name in names or (loop and set(re.findall(r"\w+", loop[0])) & names), name
    for call in revealed:
        assert not isinstance(call.args[0], ast.Constant), ast.unparse(call)
    for call in revealed:  # in a cell whose text is compared, the widget above shows it
        (cell,) = [c for c in code_cells(path) if ast.unparse(call) in ast.unparse(ast.parse(plain(c.source)))]
        quiet = any(keyword.arg == "quiet" for keyword in call.keywords)
        assert quiet == ("nbval-check-output" in cell.metadata.get("tags", [])), cell.id
