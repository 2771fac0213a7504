"""Arguments that depend on the number of GPUs: whole numbers by a safe calculation, and every error."""

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddp_rehearsal.gpu_arguments import gpu_arguments

OPERANDS = st.sampled_from(["k", *map(str, range(1, 40))])
SIGNS = st.sampled_from(["+", "-", "*", "/", "//"])
EXPRESSIONS = st.recursive(OPERANDS, lambda part: st.tuples(part, SIGNS, part).map("({0[0]} {0[1]} {0[2]})".format))


@given(EXPRESSIONS.filter(lambda text: len(text) <= 100), st.integers(1, 64))
def test_values_are_those_of_python(text, k):
    try:
        value = eval(re.sub(r"\d+|k", lambda found: f"Fraction({found[0]})", text), {"Fraction": Fraction, "k": k})
        value = Fraction(value)
    except ZeroDivisionError:
        value = None
    if value is None or value.denominator > 1:
        with pytest.raises(ValueError, match="expected a whole number"):
            gpu_arguments(f"{{{text}}}", k)
    else:
        assert gpu_arguments(f"-n {{{text}}}", k) == ["-n", str(value)]


def test_arguments_are_split_as_in_a_shell():
    assert gpu_arguments("", 2) == [] and gpu_arguments("--fast", 2) == ["--fast"]
    assert gpu_arguments("--name 'two words' --b={ 256 / k } {-k}", 4) == ["--name", "two words", "--b=64", "-4"]


@pytest.mark.parametrize(
    ("same", "said"),
    [
        ("-b {10/k}", r"got \{10/k\} = 10/3 for k = 3\. Choose a number that 1 and 3 divide"),
        ("-b {1/(k-3)}", "divides by 0"),
        ("-b {1//(k-3)}", "divides by 0"),
        ("-b {256/k", "expected a } for each {"),
        ("-b 256/k}", "expected a } for each {"),
        ("-b '1", "expected arguments as in a shell.*No closing quotation"),
        *((f"-b {{{wrong}}}", r"expected whole numbers, k, \+ - \* / // and parentheses, as in \{256/k\}, got")
          for wrong in ("", "k k", "2**9", "9%2", "n", "0.5*k", "True", "'a'", "k.real", "f(k)", "__import__('os')",
                        "1 if k else 2", "[k]", "~k", "(" * 99, "1" * 101, "\0")),
    ],
)  # fmt: skip
def test_wrong_arguments(same, said):
    with pytest.raises(ValueError, match=said):
        gpu_arguments(same, 3)


def test_wrong_types():
    with pytest.raises(TypeError, match="same: expected str"):
        gpu_arguments(None, 2)
    with pytest.raises(ValueError, match="k: expected a positive whole number"):
        gpu_arguments("", 0)
