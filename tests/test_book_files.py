"""The book's own files: found from anywhere, copied out, and the same parts in a wheel."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from d2lite import __main__ as page
from d2lite import _install, book, book_root, show_script

ROOT = Path(__file__).parents[1]


def names(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def make_parts(folder):
    for part in book.PARTS:
        place = folder / part
        if place.suffix:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
        else:
            (place / "inside").mkdir(parents=True)


def test_the_working_directory_and_its_parents_come_first(tmp_path, monkeypatch):
    make_parts(tmp_path)
    monkeypatch.chdir(tmp_path / "book" / "inside")
    assert book_root() == tmp_path.resolve()


def test_elsewhere_it_is_the_checkout_else_the_folder_in_the_package(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert book_root() == ROOT
    package = tmp_path / "site-packages" / "d2lite"
    monkeypatch.setattr(book, "_PACKAGE", package)
    with pytest.raises(FileNotFoundError, match="the book: expected book, tools/cluster, .* got none of them"):
        book_root()
    make_parts(package / "_book")
    assert book_root() == package / "_book"


def test_a_module_of_the_book_is_imported_from_its_folder(tmp_path, monkeypatch):
    make_parts(tmp_path)
    (tmp_path / "only_here").mkdir()
    (tmp_path / "only_here" / "of_the_test.py").write_text("NUMBER = 7")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for _ in range(2):
        assert book.book_module("only_here.of_the_test").NUMBER == 7
        assert sys.path.count(str(tmp_path.resolve())) == 1
    with pytest.raises(ModuleNotFoundError):
        book.book_module("only_here.not_there")


def test_a_copy_has_what_the_chapters_read_and_nothing_of_the_learner(tmp_path, monkeypatch, capsys):
    root = tmp_path / "root"
    make_parts(root)
    for left in ("d2lite-ledger.json", ".ipynb_checkpoints/x.ipynb", "runs/run.json", "__pycache__/x.pyc"):
        (root / "book" / left).parent.mkdir(exist_ok=True)
        (root / "book" / left).touch()
    (root / "book" / "one.ipynb").touch()
    monkeypatch.chdir(root)
    page.main(["book", str(tmp_path / "a" / "mine")])
    copied = tmp_path / "a" / "mine"
    assert capsys.readouterr().out == (
        f"The notebooks are in {copied / 'book'}. Open them: jupyter lab {copied / 'book'} "
        f"--LabApp.default_url=/lab/tree/index.ipynb --LabApp.app_settings_dir={copied / 'tools' / 'jupyterlab'}\n"
    )
    assert names(copied) == {"book/one.ipynb", "benchmarks/__init__.py", "benchmarks/report.py"}
    monkeypatch.chdir(copied / "book")
    assert book_root() == copied


@pytest.mark.parametrize(("folder", "said"), [("full", "which has files in it"), ("root/book/x", "inside of it")])
def test_nothing_is_written_over(tmp_path, monkeypatch, folder, said):
    make_parts(tmp_path / "root")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    monkeypatch.chdir(tmp_path / "root")
    with pytest.raises(SystemExit, match=f"python -m d2lite book: folder: expected .* {said}"):
        page.main(["book", str(tmp_path / folder)])
    assert names(tmp_path / "full") == {"mine.txt"} and not (tmp_path / "root/book/x").exists()


@pytest.mark.slow
def test_the_copy_of_this_book_is_complete(tmp_path):
    """Outside the repository the helpers of chapters 7 and 8 load, from the copy alone."""
    book.copy_book(tmp_path / "mine")
    for path in (ROOT / "book").glob("*.ipynb"):
        assert (tmp_path / "mine" / "book" / path.name).read_bytes() == path.read_bytes()
    settings = Path("tools", "jupyterlab", "overrides.json")
    assert (tmp_path / "mine" / settings).read_bytes() == (ROOT / settings).read_bytes()
    code = (
        "import d2lite, sys; root = d2lite.book_root(); sys.path.insert(0, str(root)); "
        "from book import papers; from tools.cluster import faults, hosts, links, rings, speed; "
        "from tools.slurm import box, demonstrations; "
        "assert all(m.__file__.startswith(str(root)) for m in (hosts, papers)), hosts.__file__; print(root)"
    )
    where = tmp_path / "mine" / "book"
    done = subprocess.run([sys.executable, "-c", code], cwd=where, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(tmp_path / "mine")


PACKAGED = [f"packages/{name}/src/{name}" for name in ("notebook_ranks", "ddp_rehearsal", "d2lite_course")]


def test_the_wheel_carries_the_same_parts():
    text = (ROOT / "pyproject.toml").read_text()
    carried = re.search(r"only-include = \[(.*?)\]", text, re.S)[1]
    assert set(re.findall(r'"(.*?)"', carried)) == {"d2lite", *book.PARTS, *PACKAGED}
    sources = dict(re.findall(r'(?m)^"(.*?)" = "(d2lite/_book/.*?)"$', text))
    assert sources and all(goal == f"d2lite/_book/{source}" for source, goal in sources.items())
    assert all(any(part.startswith(source) for source in sources) for part in book.PARTS)


def test_advice_fits_a_checkout_and_a_wheel(tmp_path, monkeypatch):
    assert "make lab" in _install.how_to_install()
    monkeypatch.setattr(_install, "_ROOT", tmp_path)
    advice = _install.how_to_install()
    assert "make" not in advice and "requirements.txt" not in advice and "d2lite" not in advice
    for package in ("jupyterlab", "ipywidgets", "plotly", "anywidget", "torchvision"):
        assert f'"{package}>=' in advice or f'"{package}"' in advice
    monkeypatch.setattr(page, "version_of", lambda package: None)
    report = page.report(is_reachable=lambda: False)
    assert "make" not in report and report.count(advice) == 1 and "are missing: as above" in report


@pytest.mark.slow
def test_what_shows_things_says_what_is_missing(monkeypatch):
    code = """
import sys
for name in ("plotly", "ipywidgets", "anywidget", "matplotlib"):
    sys.modules[name] = None
import d2lite
animator = d2lite.Animator("epoch", "accuracy")
animator.add(1, 0.5)
animator.flush()
try:
    d2lite.Panel
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first == "epoch 1: accuracy 0.5"
    assert re.fullmatch(r"Panel needs \w+, which is not installed: run make lab, or .*", second)


def test_a_missing_torchvision_is_named(monkeypatch):
    from d2lite.labs.chapter_08 import named_workload
    from d2lite.labs.chapter_08.workloads import _named_workload

    _named_workload.cache_clear()  # another test may have counted it
    monkeypatch.setitem(sys.modules, "torchvision", None)
    with pytest.raises(ImportError, match="the network resnet101 needs torchvision, which is not installed: run make"):
        named_workload("ResNet-101")


def test_functions_of_a_script_are_shown_in_the_order_asked_for(capsys):
    path = show_script("train_ddp.py", "load", "evaluate")
    shown = capsys.readouterr().out
    assert path == book_root() / "book" / "scripts" / "train_ddp.py"
    assert shown.startswith("def load(path, net, optimizer):")
    assert "@torch.no_grad()\ndef evaluate(" in shown and "def main(" not in shown
    with pytest.raises(ValueError, match="expected some of make_net, .*, got lead"):
        show_script("train_ddp.py", "load", "lead")
    with pytest.raises(FileNotFoundError):
        show_script("no_such_script.py")
