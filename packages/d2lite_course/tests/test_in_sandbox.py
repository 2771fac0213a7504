"""What the process that watches an answer takes from it: messages with its token, and not too many bytes."""

import json
import os

import pytest

from d2lite_course import in_sandbox

TOKEN = "of the code that observes"


@pytest.fixture
def answer():
    """The two ends of the pipe of an answer, and say(message), which writes one."""
    reads, writes = os.pipe()

    def say(message, token=TOKEN):
        os.write(writes, (json.dumps({**message, "token": token}) + "\n").encode())

    yield reads, writes, say
    os.close(reads)
    os.close(writes)


def test_an_answer_that_sends_too_much_is_not_heard_any_longer(answer, monkeypatch):
    reads, _, say = answer
    monkeypatch.setattr(in_sandbox, "SENT_BYTES", 1000)
    heard = in_sandbox._messages_of_answer({reads: 0}, 20.0, TOKEN)
    say({"case": 0})
    assert next(heard) == (0, {"case": 0, "token": TOKEN})
    say({"case": 1, "got": "x" * 1000})
    say({"case": 2})
    assert list(heard) == []


def test_what_an_answer_writes_itself_is_no_message(answer):
    reads, writes, say = answer
    say({"case": 0, "got": "forged"}, token="")
    os.write(writes, b'no json\n[]\n{"case": 1}\n' + b"[" * 50_000 + b"\n")
    say({"case": 2})
    say({"ended": True})
    heard = in_sandbox._messages_of_answer({reads: 3}, 20.0, TOKEN)
    assert list(heard) == [(3, {"case": 2, "token": TOKEN}), (3, {"ended": True, "token": TOKEN})]


def test_an_answer_that_says_nothing_is_waited_for_until_its_time_is_over(answer):
    reads, _, _ = answer
    assert list(in_sandbox._messages_of_answer({reads: 0}, 0.0, TOKEN)) == [(None, "it took longer than 0 s.")]


@pytest.mark.parametrize("case", [-1, 2, True, 0.0, "0", None])
def test_a_case_that_does_not_exist_is_not_passed_on(case):
    assert in_sandbox._as_allowed({"case": case, "got": 1}, num_cases=2) == {}
    assert in_sandbox._as_allowed({"case": 1, "got": 1, "points": 10}, num_cases=2) == {"case": 1, "got": 1}


def test_the_time_of_the_cases_begins_when_all_ranks_are_loaded(answer):
    reads, _, say = answer
    heard = in_sandbox._messages_of_answer({reads: 0}, 0.0, TOKEN, load_s=0.05)
    assert list(heard)[0] == (0, {"problem": "its statements took longer than 0.05 s here."})
    say({"loaded": True})
    heard = in_sandbox._messages_of_answer({reads: 0}, 0.0, TOKEN, load_s=60.0)
    assert list(heard)[1:] == [(None, "it took longer than 0 s.")]
