"""In which loops and branches a line stands, read from the source."""

import pytest

from notebook_ranks.code_lines import Branch, after_a_loop_with, branches_around, instead_of

CODE = """for epoch in epochs:
    for batch in batches:
        step()
        log()
    evaluate()
    if broken:
        first()
    else:
        second()
    third()
    if done:
        save()
        continue
    fourth()
finish()
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "code.py"
    path.write_text(CODE)
    return str(path)


@pytest.mark.parametrize(("inner", "outer", "is_after"), [(3, 5, True), (3, 4, False), (5, 10, False), (5, 15, True)])
def test_a_line_after_the_loop_of_a_different_one(inner, outer, is_after, file):
    assert after_a_loop_with(file, inner, outer) == is_after
    assert not after_a_loop_with(file, outer, inner)


@pytest.mark.parametrize(
    ("one", "other", "is_instead"), [(7, 9, True), (7, 10, False), (12, 14, True), (12, 10, False), (3, 4, False)]
)
def test_only_one_of_two_lines_runs(one, other, is_instead, file):
    assert instead_of(file, one, other) == instead_of(file, other, one) == is_instead


def test_without_a_source_nothing_is_known(tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("for (")
    for name in ("nowhere.py", str(broken)):
        assert not after_a_loop_with(name, 1, 2) and not instead_of(name, 1, 2) and branches_around(name, 1) == []


EPOCHS, BATCHES = Branch(1, "for epoch in epochs", range(2, 15)), Branch(2, "for batch in batches", range(3, 5))


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (1, []),
        (4, [EPOCHS, BATCHES]),
        (7, [EPOCHS, Branch(6, "if broken", range(7, 8), frozenset({"second"}))]),
        (9, [EPOCHS, Branch(6, "if broken", range(9, 10), frozenset({"first"}))]),
        (10, [EPOCHS]),
        (13, [EPOCHS, Branch(11, "if done", range(12, 14))]),
        (14, [EPOCHS, Branch(11, "if done", range(14, 15), frozenset({"save"}))]),  # `continue` leaves out the rest
        (15, []),
    ],
)
def test_the_branches_that_decide_whether_a_line_runs(line, found, file):
    assert branches_around(file, line) == found


def decided(tmp_path, text, *lines):
    """{line: [(line of a branch, what it decides)]}, loops left out."""
    path = tmp_path / "code.py"
    path.write_text(text)
    return {
        line: [(b.line, b.decides) for b in branches_around(str(path), line) if b.words[:3] != "for"] for line in lines
    }


def test_a_return_leaves_out_the_rest_of_its_function_and_break_that_of_its_loop(tmp_path):
    lines = ["def f(x):", "    if x:", "        return", "    for a in x:", "        if a:", "            break"]
    of = decided(tmp_path, "\n".join([*lines, "        g()", "    h()", "f(1)"]), 7, 8, 9)
    assert of == {7: [(2, range(4, 9)), (5, range(7, 8))], 8: [(2, range(4, 9))], 9: []}


def test_an_except_leaves_out_the_rest_of_its_try_and_what_its_end_leaves(tmp_path):
    lines = ["for x in y:", "    try:", "        f()", "        g()", "    except ValueError:", "        continue"]
    after = ["    except KeyError:", "        pass", "    except TypeError:", "        raise", "    h()", "k()"]
    of = decided(tmp_path, "\n".join([*lines, *after]), 3, 4, 11)
    assert of == {3: [(5, range(3, 12)), (7, range(3, 5))], 4: [(5, range(4, 12)), (7, range(4, 5))], 11: []}


def test_a_while_is_a_branch_too(tmp_path):
    path = tmp_path / "code.py"
    path.write_text("while not done:\n    f()\n")
    assert branches_around(str(path), 2) == [Branch(1, "while not done", range(2, 3))]
