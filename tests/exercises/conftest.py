"""What the tests of all chapters' exercises share."""

import pytest

pytest.register_assert_rewrite("tests.exercises.answers")  # before it is imported

from tests.exercises.answers import scoring  # noqa: E402


@pytest.fixture(scope="module")
def score(request):
    """score(name, answer), which judges by the exercises of the test's module."""
    with scoring(request.module.EXERCISES) as score:
        yield score


def pytest_generate_tests(metafunc):
    """Run a test of `AnswerTests` once for each answer, or exercise, of its class."""
    of_class = {
        "wrong_answer": lambda cls: cls.answers.all_wrong,
        "right_answer": lambda cls: cls.answers.all_right,
        "exercise": lambda cls: cls.exercises,
    }
    for name in of_class.keys() & set(metafunc.fixturenames):
        metafunc.parametrize(name, of_class[name](metafunc.cls))
