"""Pages on messages: who has some is asked, once, and a failure of ranks ends with what it said."""

import pytest

from notebook_ranks.failures import describe_failure
from notebook_ranks.shared import explained
from notebook_ranks.shared.explained import explain_by, explanation_of


@pytest.fixture(autouse=True)
def nobody(monkeypatch):
    monkeypatch.setattr(explained, "_explains", [])


def knows_the_port(message):
    return "The port is explained on page 3." if "in use" in message else ""


def test_without_pages_nothing_is_explained():
    assert explanation_of("Address already in use") == ""


def test_the_first_that_knows_is_told_and_each_is_asked_once():
    asked = []
    for page in (asked.append, knows_the_port, knows_the_port):
        explain_by(page)
    assert explanation_of("OSError: Address already in use") == "The port is explained on page 3."
    assert explanation_of("KeyError: 3") == ""
    assert len(asked) == 2 and len(explained._explains) == 2


def test_the_failure_of_a_rank_ends_with_the_explanation():
    explain_by(knows_the_port)
    failed = {"state": "error", "type": "OSError", "message": "in use", "frames": (), "causes": ()}
    rank, said = describe_failure({0: {"state": "done"}, 1: failed}, 5.0)
    assert rank == 1 and said.count("The port is explained on page 3.") == 1
    _, said = describe_failure({0: {"state": "done"}, 1: failed | {"message": "elsewhere"}}, 5.0)
    assert "explained" not in said
