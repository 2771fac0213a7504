"""The message about a failure: short, complete in a file, and made without running anything of a rank's."""

import os
import re
import signal
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from d2lite._text import printable, text_of
from d2lite.devices import num_gpus
from d2lite.workers.failures import describe_failure, ended_by, short_message
from d2lite.workers.pool import Workers, WorkersError
from d2lite.workers.process import RankProcess
from d2lite.workers.rank import error_report
from tests.by_value import by_value

needs_ranks = pytest.mark.skipif(os.name == "nt" or bool(num_gpus()), reason="needs ranks that compute on CPUs")


@pytest.fixture(scope="module")
def pool():
    with Workers(2, timeout_s=2) as pool:
        yield pool


def report_of(fn, *args):
    """The report of the error that fn raises, as a rank sends it."""
    try:
        fn(*args)
    except BaseException as error:
        return {"state": "error", **error_report(error)}


def message_of(fn, *args):
    return describe_failure({0: report_of(fn, *args), 1: {"state": "done"}}, 60)[1]


def raise_(error):
    raise error


def file_in(message):
    return Path(re.search(r"The whole message is in (.*)\.$", message)[1])


def deep(n):
    return deep(n - 1) if n else raise_(ValueError("at the bottom"))


LONG = {
    "characters": (raise_, ValueError("x" * 200_000 + "end")),
    "lines": (raise_, ValueError("x\n" * 200_000 + "end")),
    "wide lines": (raise_, ValueError("\n".join(["x" * 1000] * 30))),
    "frames": (deep, 900),
}


@pytest.mark.parametrize("case", LONG)
def test_a_long_message_is_cut_and_is_whole_in_a_file(case):
    fn, *args = LONG[case]
    message = message_of(fn, *args)
    assert len(message) <= 4096 and len(message.splitlines()) <= 40
    assert message.startswith("rank 0 failed: ValueError: ") and "rank 1 had returned." in message
    whole = file_in(message).read_text()
    assert str(report_of(fn, *args)["message"]) in whole and whole.count("in deep") == (901 if case == "frames" else 0)


def test_the_lines_about_many_ranks_are_cut():
    reports = {r: {"state": "done"} for r in range(64)} | {5: report_of(raise_, ValueError("boom"))}
    message = describe_failure(reports, 60)[1]
    assert len(message.splitlines()) <= 40 and "rank 63 had returned." in message
    assert file_in(message).read_text().count("had returned") == 63


def test_a_short_message_is_left_alone():
    assert short_message("head", ["", "body"], ["", "rank 1 had returned."]) == "head\n\nbody\n\nrank 1 had returned."


def test_the_chain_of_causes_is_shown_as_python_shows_it():
    def chain():
        try:
            try:
                {}["a"]
            except KeyError as error:
                raise ValueError("in the middle") from error
        except ValueError:
            raise TypeError("on top")  # noqa: B904

    message = message_of(chain)
    order = ["KeyError: 'a'", "direct cause of the following", "ValueError: in the middle", "During the handling"]
    places = [message.index(text) for text in [*order, "\nTypeError: on top"]]
    assert places == sorted(places) and message.startswith("rank 0 failed: TypeError: on top")


def test_a_cause_that_is_hidden_or_goes_round_in_circles_ends():
    first, second = ValueError("first"), TypeError("second")
    first.__cause__, second.__cause__ = second, first
    assert [x["type"] for x in report_of(raise_, first)["causes"]] == ["TypeError"]

    def hidden():
        try:
            {}["a"]
        except KeyError:
            raise ValueError from None

    assert report_of(hidden)["causes"] == []


class Hostile(Exception):
    """Its text and its pickle do harm."""

    def __str__(self):
        raise KeyboardInterrupt

    def __reduce__(self):
        return exec, ("raise SystemExit('pwned')",)


class Huge(str):
    """A text that is no plain one."""

    def __str__(self):
        return self

    def __getitem__(self, key):
        return self


def test_hostile_errors_become_plain_bounded_texts():
    report = report_of(raise_, Hostile())
    assert report["type"] == "Hostile" and report["message"] == "(its __str__ raises KeyboardInterrupt)"
    assert type(text_of(Huge("a"))) is str and type(text_of(ValueError(Huge("a")))) is str
    report = report_of(raise_, type("\x1b[2J<b>", (Exception,), {})("\x00\x1b]0;title\x07\ud800"))
    assert report["type"] == r"\x1b[2J<b>" and report["message"] == r"\x00\x1b]0;title\x07\ud800"


def test_printable_leaves_text_alone():
    assert printable("größer\n\t日本 ✓") == "größer\n\t日本 ✓"


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_every_signal_has_a_name():
    assert ended_by(-9) == "SIGKILL" and ended_by(3) == "exit code 3" and ended_by(None) == "exit code unknown"
    names = [ended_by(-number) for number in range(1, 65)]
    assert len(set(names)) == 64 and all(re.fullmatch(r"SIG[A-Z]+\d?(\+\d+)?|signal 3[23]|SIG\w+", n) for n in names)
    if hasattr(signal, "SIGRTMIN"):
        assert ended_by(-signal.SIGRTMIN - 5) == "SIGRTMIN+5"


def first_reduce(rank):
    t = torch.ones(4)
    if rank == dist.get_rank():
        dist.all_reduce(t)
    dist.broadcast(t, 0)
    if rank != dist.get_rank():
        dist.all_reduce(t)


@pytest.mark.slow
@needs_ranks
@pytest.mark.parametrize("rank", [0, 1])
def test_collectives_in_different_order_are_named_as_such(pool, rank):
    with pytest.raises(WorkersError) as caught:
        pool.run(by_value(first_reduce), rank)
    ranks = {rank: "all_reduce", 1 - rank: "broadcast"}
    head = str(caught.value).splitlines()[0]
    assert head.startswith(
        f"the ranks waited for each other in different collectives: rank 0 in {ranks[0]}, rank 1 in {ranks[1]}. All "
        "ranks must call the same collectives in the same order. "
    )
    assert "was in first_reduce" in head


def test_other_waits_are_not_called_different_collectives():
    here = [("cell", 1, "f"), ("/torch/distributed/distributed_c10d.py", 2, "all_reduce")]
    there = [("cell", 1, "f"), ("/torch/distributed/distributed_c10d.py", 2, "recv")]
    timed_out = {"state": "error", "type": "RuntimeError", "message": "Timed out", "frames": here, "causes": []}
    for other in ({"state": "running", "frames": there}, {"state": "running", "frames": here}, {"state": "done"}):
        assert "different collectives" not in describe_failure({0: timed_out, 1: other}, 60)[1]


@pytest.mark.slow
@needs_ranks
def test_a_hostile_error_and_a_real_time_signal_on_real_ranks(pool):
    def hostile():
        class Hostile(Exception):
            def __str__(self):
                raise SystemExit

            def __reduce__(self):
                return os._exit, (7,)

        raise Hostile

    with pytest.raises(WorkersError, match=r"rank \d failed: Hostile: \(its __str__ raises SystemExit\)"):
        pool.run(by_value(hostile))
    if hasattr(signal, "SIGRTMIN"):
        with pytest.raises(WorkersError, match=r"rank \d died \(SIGRTMIN\+6\)"):
            pool.run(by_value(end_by), signal.SIGRTMIN + 6)


def end_by(number):
    os.kill(os.getpid(), number)


def test_a_late_answer_about_frames_does_not_replace_the_traceback():
    rank = RankProcess.__new__(RankProcess)
    rank.report = {"state": "error", "frames": [("cell", 1, "f")]}
    rank._reported("frames", [])
    assert rank.report["frames"] == [("cell", 1, "f")]
