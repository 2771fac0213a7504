"""Stubs, and answers with other parameters than the exercise asks for."""

import functools

import pytest
import torch

from d2lite.exercises.check import is_stub, wrong_parameters


def documented(x):
    """Say what it should do."""
    # your code


def dots(x): ...


def not_implemented(x):
    raise NotImplementedError


def not_implemented_called(x):
    raise NotImplementedError()


def not_implemented_from_none(x):
    raise NotImplementedError from None


def not_implemented_yet(x):
    """Say what it should do."""
    raise NotImplementedError("your code")


class Stub:
    def method(self, x):
        return None

    __call__ = method


@functools.wraps(dots)
def wrapper(x):
    return dots(x)


cell = 3
inner = (lambda y: lambda x: None)(cell)
STUBS = [
    documented, dots, not_implemented, not_implemented_called, not_implemented_from_none,
    not_implemented_yet, lambda x: None, inner, Stub(), Stub().method, wrapper,
    functools.partial(dots, 1), torch.no_grad()(dots),
]  # fmt: skip


@pytest.mark.parametrize("answer", STUBS)
def test_what_does_nothing_is_a_stub(answer):
    assert is_stub(answer)


def writes_in_place(x):
    x += 1


def yields(x):
    yield


async def waits(x): ...


def raises(x):
    raise ValueError


def prints(x):
    print(x)


@pytest.mark.parametrize(
    "answer", [writes_in_place, yields, waits, raises, prints, lambda x: 0, lambda x: x, print, dict, (1).__add__]
)
def test_what_does_something_is_no_stub(answer):
    assert not is_stub(answer)


TWO = ["first", "second"]


def two(first, second):
    return first


@pytest.mark.parametrize(
    "answer",
    [two, lambda a, b=1: 0, lambda *args: 0, lambda a, b, c=0: 0, functools.partial(lambda a, b, c: 0, 1), max],
)
def test_parameters_that_fit(answer):
    assert wrong_parameters(TWO, answer, 2) == ""


def test_parameters_that_do_not_fit_are_named():
    said = "it takes 1 argument (x), and it is called with 2 arguments (first, second)."
    assert wrong_parameters(TWO, dots, 2) == said
    assert wrong_parameters(TWO, lambda: 0, 2).startswith("it takes 0 arguments, and")
    assert wrong_parameters(TWO, dots, 1) == ""
    assert wrong_parameters(TWO, dots, 2) == said
    by_name = "it takes 1 argument (c) after a *, which can be given by name only, and it is called with 2 arguments "
    assert wrong_parameters(TWO, lambda a, b, *, c: 0, 2) == by_name + "(first, second) by position. Remove the *."
    assert wrong_parameters(TWO, lambda *, first, second: 0, 2).startswith(
        "it takes 2 arguments (first, second) after a *"
    )
    assert wrong_parameters(TWO, lambda a, b, *, c=0: 0, 2) == ""
