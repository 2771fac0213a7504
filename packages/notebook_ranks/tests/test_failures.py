"""The message about a failure: short, complete in a file, and made without running anything of a rank's."""

import math
import os
import re
import signal
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from d2lite.devices import num_gpus
from d2lite.exercises.bounded import quiet_pool
from d2lite.labs.chapter_07.faults import CAUSES, Job, simulated_records, train_job
from notebook_ranks.failures import describe_failure, ended_by, short_message
from notebook_ranks.flight_recorder import Collective, FlightRecord
from notebook_ranks.hang_diagnosis import diagnose_hang
from notebook_ranks.pool import WorkersError
from notebook_ranks.rank import error_report
from notebook_ranks.rank_handle import RankHandle
from notebook_ranks.shared.format import printable, text_of
from tests.by_value import by_value

TIMEOUT_S = 2  # of the pool

needs_ranks = pytest.mark.skipif(os.name == "nt" or bool(num_gpus()), reason="needs ranks that compute on CPUs")


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
def test_collectives_in_different_order_leave_it_open_which_of_two_ranks_is_wrong(pool, rank):
    with pytest.raises(WorkersError) as caught:
        pool.run(by_value(first_reduce), rank)
    head = str(caught.value).splitlines()[0]
    assert head.startswith("not sure which rank is at fault: rank 1 called ") and caught.value.rank is None
    assert "all_reduce no. " in head and "broadcast no. " in head and head.count("in first_reduce)") == 2
    assert head.endswith("It may also be rank 0: too few steps come before to decide.")


def test_without_records_different_collectives_are_named_as_such():
    reports = {r: timed_out(("/torch/distributed/distributed_c10d.py", 2, name)) for r, name in enumerate(("a", "b"))}
    rank, message = describe_failure(reports, 60)
    assert rank is None and message.startswith(
        "not sure which rank is at fault: the ranks waited for each other in different collectives: rank 0 in a, rank "
        "1 in b. All ranks must call the same collectives in the same order. "
    )


GLOO = "[third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] "  # begins each message of gloo


def timed_out(*frames):
    here = [("cell", 1, "f"), *frames]
    return {"state": "error", "type": "RuntimeError", "message": f"{GLOO}Timed out", "frames": here, "causes": []}


def test_other_waits_are_not_called_different_collectives():
    there = [("cell", 1, "f"), ("/torch/distributed/distributed_c10d.py", 2, "recv")]
    one = timed_out(("/torch/distributed/distributed_c10d.py", 2, "all_reduce"))
    for other in ({"state": "running", "frames": there}, {"state": "running", "frames": one["frames"]}, DONE):
        rank, message = describe_failure({0: one, 1: other}, 60)
        assert "different collectives" not in message and rank is None and message.startswith("not sure")


DONE = {"state": "done"}
ABORTED = {"state": "died", "exitcode": -6, "output": "what():  1000 vs 12"}
LOST = {**timed_out(), "message": f"{GLOO}Connection closed by peer"}
ELSEWHERE = {"state": "running", "frames": [("cell", 7, "compute")]}
OWN = {**timed_out(), "type": "TimeoutError", "message": "the file server timed out"}
LOADER = {**timed_out(), "message": "DataLoader timed out after 5 seconds"}  # a RuntimeError of PyTorch, not of a group


@pytest.mark.parametrize(
    ("reports", "rank", "first"),
    [
        ({0: timed_out(), 1: DONE}, None, "not sure which rank is at fault: rank 1 had returned while others waited"),
        ({0: timed_out(), 1: ELSEWHERE}, 1, "rank 1 did not reach the collective in which others waited 60 s for it"),
        ({0: timed_out(), 1: ELSEWHERE, 2: ELSEWHERE}, None, "not sure which rank is at fault: rank 1 did not reach"),
        ({0: ABORTED, 1: LOST}, None, "not sure which rank is at fault: rank 0 was aborted inside PyTorch's C++ code"),
        ({0: timed_out(), 1: OWN}, 1, "rank 1 failed: TimeoutError: the file server timed out"),
        ({0: ELSEWHERE, 1: LOADER}, 1, "rank 1 failed: RuntimeError: DataLoader timed out after 5 seconds"),
        ({0: ABORTED, 1: {**ABORTED, "exitcode": -9}}, 1, "rank 1 died (SIGKILL)"),
        ({0: ABORTED, 1: OWN}, 1, "rank 1 failed: TimeoutError"),
        ({0: {"state": "silent"}, 1: LOST}, 0, "rank 0 was silent for 60 s"),
        (
            {0: DONE, 1: LOST},
            None,
            f"not sure which rank is at fault: rank 1 failed: RuntimeError: {GLOO}Connection closed",
        ),
    ],
)
def test_without_records_a_rank_is_named_only_if_the_reports_leave_no_doubt(reports, rank, first):
    found, message = describe_failure(reports, 60)
    assert found == rank and message.startswith(first)


def test_a_rank_that_gave_no_record_leaves_the_decision_to_the_reports():
    reports = {0: timed_out(), 1: ELSEWHERE}
    call = Collective("all_reduce", ((4,),), "float32", "0", 1, "cell", 1, "f")
    waits = FlightRecord(0, (call,), {"0": (0, 1)}, "error")
    silent = FlightRecord(1, state="running", missing="it did not answer in time")
    assert diagnose_hang({0: waits, 1: silent}).rank is None
    rank, message = describe_failure(reports, 60, {0: waits, 1: silent})
    assert rank == 1 and message.startswith("rank 1 did not reach the collective in which others waited 60 s for it")


CAUSE_OF = [(world, rank, cause) for world, rank in ((2, 0), (2, 1), (3, 1)) for cause in CAUSES]
CAUSE_OF = [case for case in CAUSE_OF if case[2] != "save"] + [(2, 0, "save"), (3, 0, "save")]


@pytest.fixture(scope="module")
def pools():
    """{world_size: a pool}, with a time-out of 3 s."""
    with quiet_pool(2, 3) as two, quiet_pool(3, 3) as three:
        yield {2: two, 3: three}


def failed(pool, job):
    """The error of a job on real ranks; None if it does not fail."""
    try:
        pool.run(train_job, job)
    except WorkersError as error:
        return error
    return None


@pytest.mark.slow
@needs_ranks
@pytest.mark.parametrize(("world_size", "rank", "cause"), CAUSE_OF)
def test_the_error_names_the_rank_that_the_diagnosis_names_and_that_is_guilty(world_size, rank, cause, pools):
    job = Job(cause, rank, 1 if cause == "slow" else 2)
    pool = pools[world_size]
    error = failed(pool, job)
    if error is None:
        records = pool.flight_records()
        pool.stop()  # the collectives of the next job count from 1 again, as after a failure
    else:
        records = error.records
    found, simulated = diagnose_hang(records), diagnose_hang(simulated_records(job, world_size))
    expected = cause, None if cause == "send" else rank  # both ranks are at the same line
    assert records.keys() == set(range(world_size)) and (found.cause, found.rank) == expected, str(found)
    assert (simulated.cause, simulated.rank) == expected
    assert (simulated.group, simulated.number) == (found.group, found.number)
    assert (error is None) == (cause == "slow")
    # with two ranks, a call from a new line and a step fewer leave open which of them is wrong
    is_open = cause == "send" or (world_size == 2 and cause in ("uneven", "extra"))
    assert found.rank_is_sure == (not is_open)
    if is_open:
        assert error.rank is None and str(error).startswith(f"not sure which rank is at fault: {found.words}")
    elif error is not None:
        head, *more = str(error).splitlines()
        assert error.rank == rank and head.startswith(f"rank {rank} ")
        # a process that has ended or is stopped has no record; else the diagnosis is the first line
        assert head == found.words if cause not in ("dead", "stopped") else found.words.startswith(f"rank {rank}: its")
        others = "\n".join(more)
        assert all(f"rank {other} " in others for other in range(world_size) if other != rank)
        assert head.count("aborted") == 0 and (cause not in ("size", "dtype") or "was aborted inside PyTorch" in others)


@by_value
def train_ddp_past_a_nan(guilty, with_buffers):
    """DDP sends its buffers before the loss is known, and its gradients afterwards."""
    norm = torch.nn.BatchNorm1d(16) if with_buffers else torch.nn.ReLU()
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 16), norm))
    for step in range(5):
        X = torch.full((4, 8), math.nan if (dist.get_rank(), step) == (guilty, 3) else 1.0)
        loss = net(X).square().mean()
        if torch.isnan(loss):
            continue
        loss.backward()
    dist.barrier()


@pytest.mark.slow
@needs_ranks
@pytest.mark.parametrize("with_buffers", [True, False])
@pytest.mark.parametrize("world_size", [2, 3])
def test_a_rank_that_goes_on_where_its_loss_is_nan_is_named_or_in_doubt(world_size, with_buffers, pools):
    with pytest.raises(WorkersError) as failure:
        pools[world_size].run(train_ddp_past_a_nan, 1, with_buffers)
    found = diagnose_hang(failure.value.records)
    assert found.rank == 1 and "`if torch.isnan(loss)` (test_failures.py line " in found.words
    if with_buffers:  # the next forward pass sends them where the others send gradients
        assert (found.cause, found.rank_is_sure) == ("branch", True)
    else:  # one step fewer, as with a minibatch fewer
        assert (found.cause, found.is_sure, found.rank_is_sure) == ("uneven", False, world_size > 2)


@pytest.mark.slow
@needs_ranks
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("cause", ["missing", "extra", "order", "size", "dtype", "group"])
def test_in_the_first_step_of_two_ranks_the_error_is_not_sure_and_accuses_nobody(cause, rank, pools):
    error = failed(pools[2], Job(cause, rank, 0))
    found = diagnose_hang(error.records)
    assert error.rank is None and not found.rank_is_sure
    assert str(error).splitlines()[0] == f"not sure which rank is at fault: {found.words}"
    assert "too few steps come before to decide" in found.words


@pytest.mark.slow
@needs_ranks
@pytest.mark.parametrize("rank", [0, 1])
def test_a_send_in_the_wrong_order_is_simulated_as_real_ranks_do_it(rank, pools):
    """An even rank that receives first waits in a receive, as its neighbour does; an odd one that sends, in a send."""
    job = Job("send", rank)
    found, simulated = failed(pools[2], job).records, simulated_records(job, 2)
    for records in (found, simulated):
        assert [record.waits_in for record in records.values()] == [("recv", "send")[rank]] * 2
    assert diagnose_hang(found).words == diagnose_hang(simulated).words
    assert [len(r.collectives) for r in found.values()] == [len(r.collectives) for r in simulated.values()] == [12, 12]


@pytest.mark.slow
@needs_ranks
def test_an_error_of_a_rank_leads_with_its_traceback_whatever_the_records_say(pools):
    error = failed(pools[2], Job("raise", 1))
    assert error.rank == diagnose_hang(error.records).rank == 1
    assert str(error).startswith("rank 1 failed: RuntimeError: a bug on one rank only\n\nTraceback")


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
    rank = RankHandle.__new__(RankHandle)
    rank.report = {"state": "error", "frames": [("cell", 1, "f")]}
    rank._reported("frames", [])
    assert rank.report["frames"] == [("cell", 1, "f")]


@pytest.mark.parametrize("file", ["<string>", "/usr/lib/python3/dist-packages/course/steps.py"])
def test_without_a_line_of_the_learner_the_place_is_not_inside_of_pytorch(file):
    frames = [(file, 3, "step"), (dist.distributed_c10d.__file__, 9, "all_reduce")]
    message = describe_failure({0: {"state": "running", "frames": frames}, 1: {"state": "done"}}, 60)[1]
    assert "was in step, " in message and "line 3" in message
