"""Exceptions of any kind in words that fit the page."""

import dataclasses
import json
import os

import pytest

from d2lite.widgets import explain_error as explaining
from d2lite.widgets.explain_error import explain_error, truncate


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("not today")


def caught(error, cause=None):
    try:
        raise error from cause
    except BaseException as caught:
        return caught


def test_a_message_that_cannot_be_made_is_told_as_that():
    words = explain_error(caught(Mute()))
    assert words.startswith("Mute: (its __str__ raises RuntimeError)\nin caught, line ")


def frames(code, filename, **space):
    exec(compile(code, filename, "exec"), space)
    return space


def line_of(call):
    try:
        call()
    except Exception as error:
        return explain_error(error).splitlines()[-1]


@dataclasses.dataclass
class Checked:
    x: int

    def __post_init__(self):
        raise ValueError("x")


def test_the_learner_s_line_is_named_and_not_generated_code_or_a_library_s():
    stdlib = json.__file__.replace("json", "none")
    ours = explaining.__file__
    kernels = os.path.join("x", "site-packages", "ipykernel", "kernelbase.py")
    for filename in ("<string>", stdlib, ours, kernels):
        library = frames("def check(x):\n    raise ValueError(x)\n", filename)["check"]
        for mine in ("/tmp/ipykernel_1/2.py", "<ipython-input-1>", "<stdin>", "/home/me/net.py"):
            learner = frames("\n\ndef train():\n    check(1)\n", mine, check=library)["train"]
            assert line_of(learner).startswith("in train, line 4: "), (filename, mine)
    make = frames("def make():\n    Made(1)\n", "<ipython-input-2>", Made=Checked)["make"]
    Checked.__post_init__ = frames("def check(self):\n    raise ValueError\n", stdlib)["check"]
    assert line_of(make).startswith("in make, line 2: ")


class Named(type):
    @property
    def __name__(cls):
        raise RuntimeError("not today")


def test_a_class_that_hides_its_name():
    assert explain_error(Named("Hidden", (Exception,), {})("why")) == "Hidden: why"


@pytest.mark.parametrize("message", ["x" * 10_000_000, "line\n" * 1_000_000, "\n" * 100_000, "é" * 5000])
def test_a_message_of_any_length_fits_the_page(message):
    words = explain_error(caught(ValueError(message)))
    assert len(words) <= 4096 and len(truncate(words)) == len(words) and words.count("\n") < 40
    assert "characters more\n" in words and "raise error from cause" in words.splitlines()[-1]
    assert len(explain_error(type("T" * 100_000, (Exception,), {})())) < 200


def test_what_fits_is_not_cut():
    text = "line\n" * 39 + "last"
    assert truncate(text) == text and truncate("x" * 4096) == "x" * 4096
    assert truncate("abc\n" * 50, lines=3) == "abc\nabc\n... 193 characters more"


def test_causes_are_told_and_a_ring_of_them_ends():
    words = explain_error(caught(ValueError("top"), caught(KeyError("middle"), OSError("bottom"))))
    assert words.startswith("ValueError: top\ncaused by KeyError: 'middle'\ncaused by OSError: bottom\nin caught")
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert explain_error(one) == "ValueError: one\ncaused by ValueError: two"
