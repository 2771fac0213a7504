"""The form of an exhibit: a wrong function next to the right one, the lines that differ, the symptom and the fix."""

import ast
import difflib
import html
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from d2lite.training import replicate, train_batch

from .step_case import Replicate, TrainBatch

__all__ = ["DRIFT", "LATER", "LONG", "NOTHING", "SHORT", "SIGNS", "SIZES", "BugExhibit"]

# the symptoms that a learner may expect of a bug; an exhibit has one or two of them
SIGNS = LONG, SHORT, DRIFT, SIZES, LATER, NOTHING = (
    "the step is too long",
    "the step is too short",
    "replicas drift apart",
    "wrong for some sizes of minibatches only",
    "right in step 1, wrong from step 2 on",
    "no curve shows it",
)


@dataclass(frozen=True, repr=False)
class BugExhibit:
    """A bug: its name, its symptom, the fix, the wrong functions, and the same functions repaired.

    `signs` are those of SIGNS that a learner may rightly expect. `helpers` are the right and the wrong function that
    the steps call, if the bug is inside such a function. `found_as` is the name that `check_step` gives to the bug, if
    it differs from `name`.
    """

    name: str
    symptom: str
    fix: str
    signs: tuple[str, ...]
    train_batch: TrainBatch = train_batch
    replicate: Replicate = replicate
    right_step: TrainBatch = train_batch
    right_replicate: Replicate = replicate
    helpers: tuple[Callable[..., object], ...] = ()
    found_as: str = ""

    @property
    def changes(self) -> list[str]:
        """The lines that differ from right code, each with "right: " or "wrong: " in front, and one line around them.

        Lines of a function other than the training step stand below the name of that function.
        """
        right, wrong = (function.__name__ for function in self.helpers or (train_batch, train_batch))
        lines = _changed_lines(self.right_step, self.train_batch, {wrong: right})
        pairs = [(self.helpers[0], self.helpers[1])] if self.helpers else []
        for one, other in [*pairs, (self.right_replicate, self.replicate)]:
            if changed := _changed_lines(one, other):
                lines += [f"in {one.__name__}:", *changed]
        return lines

    def __repr__(self) -> str:
        return "\n".join([self.name, *self.changes, f"symptom: {self.symptom}", f"fix: {self.fix}"])

    def _repr_html_(self) -> str:
        words = f"Symptom: {html.escape(self.symptom)}.<br>Fix: {html.escape(self.fix)}."
        code = html.escape("\n".join(self.changes))
        return f"<details><summary>{html.escape(self.name)}</summary><pre>{code}</pre><p>{words}</p></details>"


_MARKS = {"-": "right: ", "+": "wrong: ", " ": "       "}


def _changed_lines(
    right: Callable[..., Any], wrong: Callable[..., Any], renamed: Mapping[str, str] | None = None
) -> list[str]:
    """Return the lines of two functions that differ, marked with "right: " and "wrong: ", and one line around each.

    Docstrings, comments and checks of arguments do not count. What a function returns does not count if the other
    function returns nothing. `renamed` is {name in wrong: name in right} for called functions: their names do not count
    as a difference.
    """
    one, other = _body_of(right), _body_of(wrong)
    if isinstance(one[-1], ast.Return) != isinstance(other[-1], ast.Return):
        one, other = ([node for node in body if not isinstance(node, ast.Return)] for body in (one, other))
    lines, others = _code_lines(one), _code_lines(other)
    for name, instead in (renamed or {}).items():
        others = [line.replace(name, instead) for line in others]
    if lines == others:
        return []
    pairs = difflib.unified_diff(lines, others, n=1, lineterm="")
    return [_MARKS[line[0]] + line[1:] for line in list(pairs)[2:] if line[0] in _MARKS]


def _body_of(function: Callable[..., Any]) -> list[ast.stmt]:
    (tree,) = ast.parse(inspect.getsource(function)).body
    assert isinstance(tree, ast.FunctionDef)
    return tree.body[ast.get_docstring(tree) is not None :]


def _code_lines(body: list[ast.stmt]) -> list[str]:
    text = "\n".join(ast.unparse(node) for node in body)
    return [line.removeprefix("losses = ") for line in text.splitlines() if not line.startswith("check_")]
