"""The same five submissions get the same points from our grader, from nbgrader and from otter."""

import pytest

from packages.d2lite_course.tests.sandboxes import needs_sandbox
from tools.compare_graders import compare, installed, table


def test_the_table_has_a_line_for_each_submission():
    text = table({"right": {"a": [1.0, 2.5], "b": [0.0, 0.0]}}, {"a": 1.2, "b": 3.0})
    assert text.splitlines()[2:] == ["| right | 1 + 2.5 = 3.5 | 0 + 0 = 0 |", "| seconds for all | 1 | 3 |"]


@pytest.mark.slow
@pytest.mark.skipif(not installed(), reason="nbgrader and otter are not in .bench: make graders installs them")
@needs_sandbox
def test_three_graders_agree(tmp_path):
    found, _ = compare(tmp_path)
    for learner, scores in found.items():
        assert scores["d2lite"] == scores["nbgrader"] == scores["otter"], learner
    totals = {learner: sum(scores["d2lite"]) for learner, scores in found.items()}
    assert (totals["right"], totals["looping"], totals["empty"], totals["cheating"]) == (30, 20, 0, 0)
    assert 10 < totals["half right"] < 20
    assert found["looping"]["nbgrader"] == [10, 10, 0]
