"""Which code counts as the learner's own."""

import json
import os
import sys
import sysconfig
import types

import pytest

import d2lite
from notebook_ranks.shared.own_code import is_own_code


@pytest.mark.parametrize(
    "file",
    [
        "/home/ada/train.py",
        "/tmp/ipykernel_17/2063.py",
        "<ipython-input-3-2c1b>",
        "<python-input-0>",
        "<stdin>",
        __file__,
    ],
)
def test_cells_and_files_are_own_code(file):
    assert is_own_code(file)


@pytest.mark.parametrize(
    "file",
    [
        d2lite.__file__,
        json.__file__,
        os.path.join(sysconfig.get_path("purelib"), "lightning", "trainer.py"),
        os.path.join(os.sep, "usr", "lib", "python3", "dist-packages", "yaml.py"),
        os.path.join(os.sep, "tmp", "torchinductor_ada", "ab", "cab.py"),
        "<string>",
        "<frozen runpy>",
        "<eval_with_key>.1",
    ],
)
def test_libraries_and_generated_code_are_not(file):
    assert not is_own_code(file)


def test_a_folder_whose_name_begins_like_the_package_is_own_code():
    assert is_own_code(os.path.dirname(d2lite.__file__) + "_mine" + os.sep + "train.py")


def test_pytorch_that_is_built_in_place(monkeypatch):
    folder = os.path.join(os.sep, "src", "pytorch", "torch")
    torch = types.ModuleType("torch")  # without a spec
    torch.__file__ = os.path.join(folder, "__init__.py")
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert not is_own_code(os.path.join(folder, "nn", "functional.py"))
    assert is_own_code(os.path.join(folder + "_ddp", "train.py"))


def test_without_pytorch(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")
    assert is_own_code("/home/ada/train.py") and not is_own_code(json.__file__)
