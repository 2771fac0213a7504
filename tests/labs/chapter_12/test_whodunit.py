"""Whodunit: a case is drawn, accused, revealed and scored, by the buttons and by calls."""

import re

import pytest

pytest.importorskip("plotly")
pytest.importorskip("ipywidgets")

from d2lite.labs.chapter_07 import CAUSES  # noqa: E402
from d2lite.labs.chapter_12 import Whodunit  # noqa: E402
from notebook_ranks import diagnose_hang, first_mismatch  # noqa: E402


@pytest.mark.slow
def test_the_records_say_who_it_was_in_every_case():
    game = Whodunit(2, seed=0)
    for _ in range(40):
        found = diagnose_hang(game.records)
        rank = guilty_by_the_code(game) if found.cause == "send" else found.rank
        assert game.is_open and game.accuse(rank, found.cause)
        assert (game._job.rank, game._job.cause) == (rank, found.cause)
        game.next()
    assert game.score == (40, 40) and {job.cause for job, *_ in game.results} >= {"missing", "size", "dead", "send"}


def guilty_by_the_code(game):
    """The rank that sends and receives in the wrong order: the even one must send first, and the odd one receive."""
    places = re.findall(r"rank (\d) waits in a (send|receive), in swap_with_neighbour", game._now.value)
    return next(int(rank) for rank, call in places if (call == "send") != (int(rank) % 2 == 0))


def drawn(game):
    """The names of the boxes that are shown, by which they have their colours, and what is written in them."""
    return " ".join(f"{trace.name} {' '.join(trace.text)}" for trace in game.plot.figure.data)


def test_a_case_is_revealed_after_the_accusation_only():
    game = Whodunit(3, seed=1, causes=["size"])
    assert "does not match" not in drawn(game) and "It was" not in game._verdict.value
    assert "</span> not attempted</div>" in game._verdict.value
    assert repr(game).startswith("Whodunit: 0 of 0 right. The records:\nrank 0")
    right = game._job.rank
    assert not game.accuse((right + 1) % 3, "size")
    assert "The cause is right, but it was a different rank" in game._verdict.value
    assert "It was rank " + str(right) in game._verdict.value and "does not match" in drawn(game)
    assert "</span> nearly</div>" in game._verdict.value and "0 of 1 cases right" in game._score.value
    assert "Revealed" in repr(game)


def test_the_buttons_do_the_same():
    game = Whodunit(2, seed=3)
    assert game.next_button.disabled and not game.rank.disabled and not game.button.disabled
    game.rank.value, game.cause.value = game._job.rank, game._job.cause
    game.button.click()
    assert game.score == (1, 1) and game.button.disabled and game.cause.disabled
    assert "</span> right</div>" in game._verdict.value and "1 of 1 cases right" in game._score.value
    game.button.click()
    assert game.score == (1, 1), "an accusation that was counted twice"
    shown, before = game.plot.alternative_text, game._job
    game.next_button.click()
    assert game.is_open and game.plot.alternative_text != shown and game._job is not before and game.score == (1, 1)
    game.next_button.click()
    assert game._job is not before and game.is_open
    game.close()


@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause_shows_what_the_ranks_called_and_when(cause):
    game = Whodunit(2, seed=5, causes=[cause])
    figure = game.plot.figure
    lanes = [note.text for note in figure.layout.annotations if note.text.startswith("rank")]
    assert len(lanes) == 2 and len(figure.layout.xaxis.tickvals) == 5
    assert first_mismatch(game.records) or cause in ("dead", "stopped", "slow", "send")
    assert "does not match" not in drawn(game) and "not called" not in drawn(game)
    assert drawn(game).count("line") >= 4 and drawn(game).count(" ms") >= 4
    late = [int(ms) for ms in re.findall(r"\+(\d+) ms", drawn(game))]
    assert (max(late) >= 10) == (cause == "slow")


def test_where_a_rank_is_that_runs_is_said():
    game = Whodunit(2, seed=5, causes=["data"])
    assert re.match(r"rank \d is in \w+, \w+\.py line \d+$", game._now.value)


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_the_code_of_the_job_shows_who_sends_in_the_wrong_order(world_size):
    game = Whodunit(world_size, seed=1, causes=["send"])
    for _ in range(6):
        assert game._now.value.count("waits in a ") == 2
        assert game.accuse(guilty_by_the_code(game), "send")
        assert "The records say: ranks" in game._verdict.value
        game.next()


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
