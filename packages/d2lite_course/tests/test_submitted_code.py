"""The code of an exercise is found in whatever a learner hands in, with what it needs and nothing else."""

import json

import pytest

from d2lite_course.submitted_code import cells_of, code_of
from packages.d2lite_course.tests.notebooks import SETTINGS, cells, notebook, submission

CHECK = ("exercise-3-check", 'check("2.3", settings_for)')


def found(*given):
    return code_of([c if isinstance(c, tuple) else ("", c) for c in given], "2.3", "settings_for", "exercise-3")


def run(code):
    namespace = {}
    exec(code.source, namespace)
    return namespace["settings_for"](2, 3, 0.5)


def test_what_the_function_needs_is_there_and_no_more():
    code = found(
        "import math, os\nimport torch.nn.functional as F\nFACTOR = 2 * 1\nOTHER = 3\nprint('no')",
        "class Helper:\n    times = FACTOR\n\ndef helper(k):\n    return math.ceil(k) * Helper.times // 2",
        "def unused():\n    return OTHER",
        "def settings_for(k, batch_size, lr):\n    return helper(k) * batch_size, k * lr",
        CHECK,
    )
    assert run(code) == (6, 1.0) and code.notes == []
    for word in ("OTHER", "unused", "print", "functional"):
        assert word not in code.source


def test_a_name_that_a_statement_makes_is_named():
    code = found("panel = Panel()\nk0 = panel.k", "def settings_for(k, b, lr):\n    return panel, k", CHECK)
    assert code.notes == ["it needs panel, which a statement of the notebook makes: that is not run here."]
    local = found("panel = Panel()", "def settings_for(k, b, lr):\n    panel = 1\n    return panel", CHECK)
    assert local.notes == []


def test_the_last_definition_before_the_check_counts():
    later = "def settings_for(k, batch_size, lr):\n    return 'later'"
    assert run(found(later, SETTINGS, CHECK, later)) == (6, 1.0)
    assert run(found(SETTINGS, CHECK)) == run(found("settings_for = lambda k, b, lr: (k * b, k * lr)", CHECK))
    without = found(SETTINGS, later)
    assert run(without) == "later" and "not there any more" in without.notes[0]


def test_a_function_of_another_name_is_that_of_the_check():
    code = found(SETTINGS.replace("settings_for", "mine"), 'check("2.3", mine)')
    assert code.function == "mine" and code.notes == ["the function is called mine and not settings_for."]


@pytest.mark.parametrize(
    "given, said",
    [
        ([CHECK], "there is no function settings_for."),
        (
            ["def other(): pass", 'check("5.1", other)'],
            'it was not handed in: neither check("2.3", ...) nor a function ',
        ),
        ([("exercise-3", "def settings_for(:\n    pass"), CHECK], "syntax error, in line 1"),
        (["def settings_for(k) return k", CHECK], "syntax error"),
        ([("exercise-3", "(" * 5000 + ")" * 5000), CHECK], "its cell has a syntax error"),
    ],
)
def test_what_is_missing_or_broken_is_said(given, said):
    code = found(*given)
    assert code.source == "" and said in code.notes[-1]


def test_comments_decorators_and_neighbours_are_read_as_they_stand():
    code = found(
        "import functools; x = 1\n@functools.cache\n@functools.wraps(\n    len)\ndef twice(n):\n    # doubled\r\n"
        "    return 2 * n",
        "y = 2; settings_for = lambda k, b, lr: (k * b * twice(1) // 2, 'ü' and k * lr); z = 3",
    )
    assert run(code) == (6, 1.0) and "# doubled" in code.source
    assert "x = 1" not in code.source and "z = 3" not in code.source


def test_magics_and_broken_cells_do_not_matter():
    code = found("%matplotlib inline\n!pip list\nx?", "%%time\nnot python", "this is no code", SETTINGS, CHECK)
    assert run(code) == (6, 1.0) and code.notes == []


@pytest.mark.parametrize(
    "line, word",
    [
        ("import gc", "gc"),
        ("import torch\ntorch.allclose = lambda *a: True", ""),
        ("import sys", ""),
    ],
)
def test_an_import_alone_is_no_reason_unless_the_function_uses_it(line, word):
    code = found(line, SETTINGS, CHECK)
    assert code.notes == []


@pytest.mark.parametrize(
    "body, word",
    [
        ("import gc; gc.get_objects()", "gc"),
        ("import sys; sys._getframe(1)", "_getframe"),
        ("torch.allclose = print", "torch.allclose = ..."),
        ("open('/proc/self/mem')", "/proc"),
        ("os._exit(0)", "_exit"),
    ],
)
def test_what_ordinary_answers_do_not_use_is_named(body, word):
    code = found("import os, torch", f"def settings_for(k, b, lr):\n    {body}\n    return k", CHECK)
    (note,) = code.notes
    assert note.startswith("look at this answer yourself") and word in note


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"cells": 1}', '{"metadata": {}}', "[" * 100_000, "\0"])
def test_what_is_no_notebook_is_refused(text):
    with pytest.raises(ValueError, match="it is no notebook"):
        cells_of(text)


def test_cells_of_any_form_are_read():
    text = {"cells": [{"cell_type": "code", "source": ["a\n", 1]}, {"cell_type": "markdown"}, 5, {"cell_type": "code"}]}
    assert cells_of(json.dumps(text)) == [("", "a\n1"), ("", "")]
    assert cells_of(submission()) == cells() and cells_of(notebook([])) == []
