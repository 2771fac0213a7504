"""When a rank that does not answer is given up, on a clock and a core that stand still unless a test moves them."""

from types import SimpleNamespace

import pytest

from notebook_ranks import rank_handle
from notebook_ranks.rank_handle import ASK_FRAMES, PATIENCE, PING_S, RankHandle

TIMEOUT_S = 10.0


class Pipe:
    """A pipe that keeps what is sent, and can take some more."""

    def __init__(self):
        self.sent = []

    def send(self, parts):
        self.sent.append(parts)

    def flush(self):
        return 1


class Rank(RankHandle):
    """A rank that has just been heard of; time passes for it, with work or without."""

    def __init__(self, clock):
        self.clock, self.worked_s = clock, 0.0
        super().__init__(0, SimpleNamespace(pipes=[Pipe()]))

    def _cpu_s(self):
        return self.worked_s

    def passes(self, seconds, works):
        self.clock.now += seconds
        self.worked_s += seconds if works else 0.0


@pytest.fixture
def rank(monkeypatch):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(rank_handle, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return Rank(clock)


@pytest.mark.parametrize(
    ("works", "num_timeouts"), [(False, 1), (True, PATIENCE)], ids=["idle", "in one long call of C code"]
)
def test_a_silent_rank_is_given_up_after_a_time_out_and_after_ten_if_it_works(rank, works, num_timeouts):
    rank.passes(2 * PING_S, works)
    assert not rank.given_up(TIMEOUT_S) and rank.pipe.sent == [ASK_FRAMES]
    asked_at = rank.clock.now
    while not rank.given_up(TIMEOUT_S):
        rank.passes(TIMEOUT_S / 4, works)
    most = (num_timeouts + 1) * TIMEOUT_S  # whether it works is looked at once a time-out
    assert num_timeouts * TIMEOUT_S < rank.clock.now - asked_at <= most + TIMEOUT_S / 4


def test_a_rank_that_stops_working_is_given_up_within_two_time_outs(rank):
    rank.passes(2 * PING_S, works=True)
    assert not rank.given_up(TIMEOUT_S)
    for _ in range(3):
        rank.passes(1.1 * TIMEOUT_S, works=True)
        assert not rank.given_up(TIMEOUT_S)
    stopped_at = rank.clock.now
    while not rank.given_up(TIMEOUT_S):
        rank.passes(TIMEOUT_S / 4, works=False)
    assert rank.clock.now - stopped_at <= 2 * TIMEOUT_S


def test_a_rank_that_has_just_been_heard_of_is_not_asked(rank):
    rank.passes(PING_S / 2, works=False)
    assert not rank.given_up(TIMEOUT_S) and rank.pipe.sent == []


def test_a_rank_that_takes_more_of_a_large_message_is_alive(rank):
    for _ in range(5):
        rank.passes(TIMEOUT_S - 2 * PING_S, works=False)
        assert not rank.given_up(TIMEOUT_S)
        rank.flush()
    assert len(rank.pipe.sent) == 5
