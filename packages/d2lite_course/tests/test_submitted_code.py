"""The statements that an answer depends on are found in whatever a learner hands in, and no others."""

import json

import pytest

from d2lite_course.submitted_code import CodeCell, ReadNotebook, cells_of, code_of
from packages.d2lite_course.tests.notebooks import SETTINGS, cells, notebook, submission

CHECK = ("exercise-3-check", 'check("2.3", settings_for)')


def found(*given):
    made = [CodeCell(*c) if isinstance(c, tuple) else CodeCell("", c) for c in given]
    return code_of(ReadNotebook(made), "2.3", "settings_for", "exercise-3")


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


def test_statements_that_make_or_change_what_is_needed_are_there():
    code = found(
        "panel = Panel()\npanel.show()\nk0 = panel.k",
        "TABLE = {}\nfor i in range(3):\n    TABLE[i] = i\nTABLE.update(a=k0)\nprint('no')",
        "def settings_for(k, b, lr):\n    return TABLE['a']",
        CHECK,
    )
    for line in ("panel = Panel()", "panel.show()", "k0 = panel.k", "for i in range(3)", "TABLE.update(a=k0)"):
        assert line in code.source
    assert "print" not in code.source and "check(" not in code.source
    local = found("panel = Panel()", "def settings_for(k, b, lr):\n    panel = 1\n    return panel", CHECK)
    assert "Panel()" not in local.source


def test_what_stands_behind_the_check_is_there_only_if_nothing_stands_before_it():
    later = "def settings_for(k, batch_size, lr):\n    return 'later'"
    assert "later" not in found(SETTINGS, CHECK, later).source
    assert run(found(CHECK, later)) == "later"
    without = found(SETTINGS, later)
    assert run(without) == "later" and "not there any more" in without.notes[0]


def test_the_last_check_counts():
    assert "later" in found(SETTINGS, CHECK, "later = 1\nsettings_for = print(later)", CHECK).source


def test_what_was_saved_of_the_check_is_read():
    for text, saved in (("right in all 5 cases.", "right"), ("right in 2 of 5 cases.", "not right")):
        code = found(SETTINGS, ("c", 'check("2.3", settings_for)', f"Exercise 2.3: {text}"))
        assert code.saved == saved
    assert found(SETTINGS, ("c", 'check("2.3", settings_for)', "Exercise 2.1: right in all")).saved == ""


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
        (
            [("exercise-3", "def other(:"), ("exercise-3-check", 'check("5.3", other)')],
            'it was not handed in: neither check("2.3", ...) nor a function ',
        ),
    ],
)
def test_what_is_missing_or_broken_is_said(given, said):
    code = found(*given)
    assert code.cells == [] and said in code.notes[-1]
    assert code.source == ("" if "syntax" not in said else next(c if isinstance(c, str) else c[1] for c in given))


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


def test_magics_that_run_code_are_read_as_that_code():
    code = found("%%time\nX = 2", "%time Y = X\nz = !ls", SETTINGS.replace("k *", "Y * X * k *"), CHECK)
    assert "X = 2" in code.source and "Y = X" in code.source and "ls" not in code.source
    files = found("%%writefile rules.py\ndef one():\n    pass", SETTINGS, CHECK).files
    assert files == {"rules.py": "def one():\n    pass"}


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
        ("error.__traceback__.tb_frame.f_back", "f_back"),
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
    assert cells_of(json.dumps(text)) == [("", "a\n1", ""), ("", "", "")]
    assert [cell[:2] for cell in cells_of(submission())] == cells() and cells_of(notebook([])) == []


@pytest.mark.parametrize("outputs", [None, 5, [5], [{"data": 5}], [{"data": {"text/plain": 5}}], [{"text": [5]}]])
def test_saved_outputs_of_any_form_are_read(outputs):
    (cell,) = cells_of(json.dumps({"cells": [{"cell_type": "code", "source": "a", "outputs": outputs}]}))
    assert cell[:2] == ("", "a")
