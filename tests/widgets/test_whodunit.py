"""Whodunit: a case is drawn, accused, revealed and scored, by the buttons and by calls."""

import html

import pytest

pytest.importorskip("plotly")
pytest.importorskip("ipywidgets")

from d2lite.widgets import Whodunit  # noqa: E402
from d2lite.workers import CAUSES, diagnose_hang, first_mismatch  # noqa: E402


def test_the_records_say_who_it_was_in_every_case():
    game = Whodunit(2, seed=0)
    for _ in range(40):
        found = diagnose_hang(game.records)
        assert game.is_open and game.accuse(found.rank, found.cause)
        assert (game._job.rank, game._job.cause) == (found.rank, found.cause)
        game.next()
    assert game.score == (40, 40) and {job.cause for job, *_ in game.results} >= {"missing", "size", "dead"}


def test_a_case_is_revealed_after_the_accusation_only():
    game = Whodunit(3, seed=1, causes=["size"])
    assert "does not match" not in game._table.value and "It was" not in game._verdict.value
    assert repr(game).startswith("Whodunit: 0 of 0 right. The records:\nrank 0")
    right = game._job.rank
    assert not game.accuse((right + 1) % 3, "size")
    assert "The cause is right, but it was a different rank" in game._verdict.value
    assert "It was rank " + str(right) in game._verdict.value and "the first that does not match" in game._table.value
    assert game._score.value == "0 of 1 right" and "Revealed" in repr(game)


def test_the_buttons_do_the_same():
    game = Whodunit(2, seed=3)
    assert game.button.description == "Accuse" and not game.rank.disabled
    game.rank.value, game.cause.value = game._job.rank, game._job.cause
    game.button.click()
    assert game.score == (1, 1) and game.button.description == "Next case" and game.cause.disabled
    shown = game._table.value
    game.button.click()
    assert game.is_open and game._table.value != shown and game.score == (1, 1)
    game.close()


@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause_has_a_table_of_what_the_ranks_called(cause):
    game = Whodunit(2, seed=5, causes=[cause])
    assert game._table.value.count("<th ") == 3
    assert first_mismatch(game.records) or cause in ("dead", "stopped", "slow")
    assert "<b>" not in game._table.value and html.unescape(game._table.value).count("line") > 4


def test_equal_seeds_draw_equal_cases():
    first, second = Whodunit(3, seed=9), Whodunit(3, seed=9)
    assert first._job == second._job and first.records == second.records


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"world_size": 1}, "world_size"),
        ({"world_size": 5}, "More lanes have no room"),
        ({"causes": ["nothing"]}, "causes: expected some of uneven, missing"),
        ({"causes": []}, "causes: expected some of"),
    ],
)
def test_wrong_arguments(arguments, words):
    with pytest.raises(ValueError, match=words):
        Whodunit(**arguments)


def test_wrong_accusations():
    game = Whodunit(2, seed=0)
    with pytest.raises(ValueError, match="rank: expected a whole number from 0 to 1, got 2"):
        game.accuse(2, "size")
    with pytest.raises(ValueError, match="cause: expected one of uneven.*got 'gremlins'"):
        game.accuse(0, "gremlins")
    game.accuse(0, "size")
    with pytest.raises(ValueError, match=r"revealed already: next\(\) draws"):
        game.accuse(0, "size")
