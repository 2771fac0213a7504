"""Arguments that depend on the number k of GPUs: "--batch-size {256/k}" is --batch-size 64 on four."""

import ast
import operator
import re
import shlex
from fractions import Fraction

from notebook_ranks.shared.checks import instance_of, positive_int

__all__ = ["gpu_arguments"]

EXPECTED = "whole numbers, k, + - * / // and parentheses, as in {256/k}"
OPERATIONS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
MOST_CHARS = 100  # of an expression


def gpu_arguments(same: str, k: int) -> list[str]:
    """Return the arguments in a text, split as a shell does, with the value for k in place of each {expression}.

    Args:
        same: arguments; an expression has whole numbers, k, + - * / // and parentheses.
        k: the number of GPUs.

    Raises:
        TypeError: if `same` is no text.
        ValueError: for a brace or a quote without its partner, an expression with anything else in it, or one whose
            value is not whole.

    Example:
        >>> gpu_arguments("--batch-size {256/k} --workers {2*(k+1)}", 4)
        ['--batch-size', '64', '--workers', '10']
    """
    instance_of("same", same, str)
    k = positive_int("k", k)
    filled = re.sub(r"\{([^{}]*)\}", lambda found: str(_whole(found[1], k)), same)
    if "{" in filled or "}" in filled:
        raise ValueError(f"same: expected a }} for each {{, got {same!r}. An expression is {EXPECTED}.")
    try:
        return shlex.split(filled)
    except ValueError as error:
        raise ValueError(f"same: expected arguments as in a shell, got {same!r}: {error}.") from error


def _whole(expression: str, k: int) -> int:
    """Return the value of an expression, which must be whole."""
    wrong = ValueError(f"same: expected {EXPECTED}, got {{{expression[:MOST_CHARS]}}}.")
    if len(expression) > MOST_CHARS:
        raise wrong
    try:
        value = _fraction(ast.parse(expression.strip(), mode="eval").body, k)
    except ZeroDivisionError as error:
        raise ValueError(f"same: expected a whole number, got {{{expression}}}, which divides by 0.") from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise wrong from error
    if value.denominator != 1:
        raise ValueError(
            f"same: expected a whole number, got {{{expression}}} = {value} for k = {k}. Choose a number that 1 and "
            f"{k} divide."
        )
    return value.numerator


def _fraction(node: ast.AST, k: int) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return Fraction(node.value)
    if isinstance(node, ast.Name) and node.id == "k":
        return Fraction(k)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_fraction(node.operand, k)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        return Fraction(OPERATIONS[type(node.op)](_fraction(node.left, k), _fraction(node.right, k)))
    raise ValueError(type(node).__name__)
