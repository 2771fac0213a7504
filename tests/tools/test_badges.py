"""Badges, and the cell that gets the kit on Colab: no unowned name is looked up in a public index."""

import importlib.util
import json
import re
import shutil
import sys
import types

import pytest
from IPython.core.inputtransformer2 import TransformerManager

import d2lite
from tools import badges

NOTEBOOKS = sorted(p for p in badges.BOOK.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)


def sources(path):
    return ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"]]


def colab_cell(path):
    (found,) = [source for source in sources(path) if "google.colab" in source]
    return found.split("\nfrom d2lite ")[0]  # the index goes on


@pytest.fixture
def book(tmp_path):
    shutil.copytree(badges.BOOK, tmp_path / "book", ignore=shutil.ignore_patterns(".*", "runs"))
    shutil.copy(badges.ROOT / "README.md", tmp_path)
    return tmp_path / "book"


@pytest.fixture
def colab(monkeypatch):
    """A stand-in for google.colab: a list of what was called."""
    calls = []
    output = types.SimpleNamespace(enable_custom_widget_manager=lambda: calls.append("widgets"))
    package, module = types.ModuleType("google"), types.ModuleType("google.colab")
    package.colab, module.output = module, output
    monkeypatch.setitem(sys.modules, "google", package)
    monkeypatch.setitem(sys.modules, "google.colab", module)
    return calls


def run(source, calls):
    """Run a cell as IPython does; magics are noted down."""
    shell = types.SimpleNamespace(run_line_magic=lambda name, line: calls.append(f"%{name} {line}"))
    exec(TransformerManager().transform_cell(source), {"get_ipython": lambda: shell})


def hide_the_kit(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "d2lite" else real(name))


def test_outside_colab_the_cell_does_nothing():
    calls = []
    run(colab_cell(NOTEBOOKS[0]), calls)
    assert calls == []


def test_on_colab_with_the_kit_it_switches_widgets_on(colab):
    run(colab_cell(NOTEBOOKS[0]), colab)
    assert colab == ["widgets"]


def test_on_colab_without_the_kit_one_sentence_names_the_wheel(colab, monkeypatch):
    hide_the_kit(monkeypatch)
    wheel = f"d2lite-{d2lite.__version__}-py3-none-any.whl"
    with pytest.raises(ImportError, match=re.escape(wheel)) as caught:
        run(colab_cell(NOTEBOOKS[0]), colab)
    assert f"%pip install './{wheel}[book]'" in str(caught.value) and "\n" not in str(caught.value)
    assert colab == []  # nothing was installed


def test_badges_install_from_the_named_repository(book, colab, monkeypatch, capsys):
    hide_the_kit(monkeypatch)
    badges.main(["--repo", "owner/name", "--ref", "v1"], book)
    assert capsys.readouterr().out == f"{len(NOTEBOOKS)} of {len(NOTEBOOKS)} notebooks changed.\n"
    run(colab_cell(book / NOTEBOOKS[0].name), colab)
    assert colab == ['%pip install -q "d2lite[book] @ git+https://github.com/owner/name@v1"', "widgets"]
    for path in NOTEBOOKS:
        place = path.relative_to(badges.BOOK).as_posix()
        first = sources(book / place)[0]
        assert first.splitlines()[0] == sources(path)[0].splitlines()[0]
        assert f"(https://colab.research.google.com/github/owner/name/blob/v1/book/{place})" in first
        assert f"(https://mybinder.org/v2/gh/owner/name/v1?urlpath=lab/tree/book/{place})" in first


def test_another_reference_replaces_the_first_and_remove_takes_both_back(book):
    before = {path: path.read_text() for path in book.rglob("*.ipynb")}
    badges.main(["--repo", "owner/name", "--ref", "v1"], book)
    badges.main(["--repo", "other/place", "--ref", "main"], book)
    for path in before:
        text = path.read_text()
        assert "owner/name" not in text and text.count("[![Open in Colab]") == 1
    badges.main(["--remove"], book)
    assert {path: path.read_text() for path in before} == before


def test_colab_has_complete_links_to_what_a_notebook_links_to(book):
    badges.main(["--repo", "owner/name", "--ref", "v1"], book)
    colab, github = (
        f"https://{host}/owner/name/blob/v1/book" for host in ("colab.research.google.com/github", "github.com")
    )
    for path in book.rglob("*.ipynb"):
        words = "\n".join(sources(path))
        relative = set(re.findall(r"\]\(([^):#\s]+\.(?:ipynb|md))", words))
        (line,) = [line for line in words.splitlines() if line.startswith("Colab does not follow")]
        complete = re.findall(r"\]\(([^)]+)\)", line)
        targets = {((path.parent / to).resolve()).relative_to(book.resolve()).as_posix() for to in relative}
        assert set(complete) == {f"{colab if to.endswith('ipynb') else github}/{to}" for to in targets}
        assert len(complete) == len(targets) and all((book / to).is_file() for to in targets)
    (line,) = [
        line for line in sources(book / "solutions" / "04-all-reduce.ipynb")[0].splitlines() if "Colab does" in line
    ]
    assert f"[chapter 4]({colab}/04-all-reduce.ipynb)" in line and f"[glossary]({github}/glossary.md)" in line


def test_a_notebook_without_relative_links_gets_no_line_of_them():
    cells = [{"cell_type": "markdown", "source": "[a](https://x.org/b.ipynb) ![c](d.png) [e](#f)"}]
    assert badges.colab_links({"cells": cells}, "owner/name", "v1", "book/01-x.ipynb") == ""


def test_readme_s_badges_open_the_index(book):
    badges.main(["--repo", "owner/name", "--ref", "v1"], book)
    badges.main(["--repo", "owner/name", "--ref", "v2"], book)
    text = (book.parent / "README.md").read_text()
    assert text.startswith("# d2lite\n\n[![Open in Colab]") and text.count("Open in Binder") == 1
    assert "(https://mybinder.org/v2/gh/owner/name/v2?urlpath=lab/tree/book/index.ipynb)" in text
    badges.main(["--remove"], book)
    assert (book.parent / "README.md").read_text() == (badges.ROOT / "README.md").read_text()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.relative_to(badges.BOOK).as_posix())
def test_no_notebook_installs_the_bare_name(path):
    for line in "\n".join(sources(path)).splitlines():
        if "pip install" in line:
            assert not re.search(r"""(?<![/\w-])d2lite(\[\w+\])?(?=["'\s]|$)(?!.* @ git\+https)""", line), line


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--repo", "owner/name"],
        ["--repo", "name", "--ref", "v1"],
        ["--repo", "owner/name", "--ref", 'v1" --extra-index-url x'],
        ["--repo", "owner/name", "--ref", "v1", "--remove"],
    ],
)
def test_wrong_arguments_change_nothing(book, arguments, capsys):
    before = {path: path.read_text() for path in book.rglob("*.ipynb")}
    with pytest.raises(SystemExit):
        badges.main(arguments, book)
    assert "expected --repo owner/name" in capsys.readouterr().err
    assert {path: path.read_text() for path in before} == before


def test_a_notebook_without_the_cell_is_named():
    with pytest.raises(ValueError, match="book/x.ipynb: expected a cell that looks for google.colab"):
        badges.marked({"cells": [{"cell_type": "markdown", "source": ["# x"]}]}, "book/x.ipynb")
