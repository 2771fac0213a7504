"""What the tests of all chapters' exercises share."""

import pytest

pytest.register_assert_rewrite("tests.book.exercises.scoring")  # before it is imported

from tests.book.exercises.scoring import scoring  # noqa: E402


@pytest.fixture(scope="session")
def score():
    """score(name, answer), which judges an answer to an exercise of the book."""
    with scoring() as score:
        yield score


def pytest_generate_tests(metafunc):
    """Run a test of `RightAnswers` or `WrongAnswers` once for each answer of its class."""
    of_class = {"wrong_answer": "all_wrong", "right_answer": "all_right"}
    for name in of_class.keys() & set(metafunc.fixturenames):
        metafunc.parametrize(name, getattr(metafunc.cls.answers, of_class[name]))
