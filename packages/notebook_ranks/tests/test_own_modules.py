"""A module that was edited since a rank imported it runs as it is on disk."""

import importlib
import os
import sys
import time

import pytest

from notebook_ranks.own_modules import OwnModules
from notebook_ranks.pool import Workers


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    modules = dict(sys.modules)
    yield tmp_path
    sys.modules.update(modules)  # other tests go on with the modules that were forgotten here
    for name in ("our_helper", "our_module"):
        sys.modules.pop(name, None)


def write(folder, value):
    (folder / "our_helper.py").write_text(f"def value(): return {value!r}\n")
    (folder / "our_module.py").write_text("from our_helper import value\n\ndef work(): return value()\n")


def test_a_change_makes_all_own_modules_be_imported_again(folder):
    write(folder, "old")
    modules, json = OwnModules(), sys.modules["json"]
    before = importlib.import_module("our_module")
    modules.note(time.time_ns())
    modules.forget_changed()
    assert importlib.import_module("our_module") is before
    (folder / "our_helper.py").write_text("def value(): return 'new and longer'\n")
    modules.forget_changed()
    assert importlib.import_module("our_module").work() == "new and longer"
    assert sys.modules["json"] is json and "d2lite" in sys.modules and "torch" in sys.modules


def test_a_file_that_changes_during_the_call_that_imports_it_counts_as_changed(folder):
    write(folder, "old")
    modules, began_ns = OwnModules(), time.time_ns()
    importlib.import_module("our_module")
    (folder / "our_helper.py").write_text("def value(): return 'new and longer'\n")
    os.utime(folder / "our_helper.py", ns=(began_ns + 10**9,) * 2)
    modules.note(began_ns)
    modules.forget_changed()
    assert importlib.import_module("our_module").work() == "new and longer"


def test_a_file_that_is_gone_counts_as_changed(folder):
    write(folder, "old")
    importlib.import_module("our_module")
    modules = OwnModules()
    (folder / "our_module.py").unlink()
    modules.forget_changed()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("our_module")


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Workers needs Linux or macOS")
def test_ranks_run_what_was_edited_and_reloaded(folder):
    write(folder, "old")
    helper, module = importlib.import_module("our_helper"), importlib.import_module("our_module")
    with Workers(1, timeout_s=20) as pool:
        pids = pool.run(os.getpid)
        assert pool.run(module.work) == ["old"]
        write(folder, "edited in the meantime")
        importlib.reload(helper)
        importlib.reload(module)
        assert module.work() == "edited in the meantime"
        assert pool.run(module.work) == ["edited in the meantime"]
        assert pool.run(os.getpid) == pids
