"""Which rank is guilty, of what: simulated records of random faults, records made by hand, and real ranks."""

import inspect
import random
from dataclasses import replace

import pytest

from d2lite.labs.chapter_07.faults import CAUSES, Job, simulated_records
from notebook_ranks.flight_recorder import Collective, FlightRecord
from notebook_ranks.hang_diagnosis import diagnose_hang, first_mismatch
from tests.by_value import by_value

TIMEOUT_S = 3  # of the pool
C10D = "/x/torch/distributed/distributed_c10d.py"

BOTH = {"0": (0, 1)}


def calls(*what, group="0", first=1, file="train.py"):
    """Collectives from (name, sizes, line) each, one after the other."""
    return tuple(
        Collective(name, sizes, "float32" if sizes else "", group, first + i, file, line, "step", 0.001 * i)
        for i, (name, sizes, line) in enumerate(what)
    )


def two(mine, theirs, **more):
    states = {"state": "error", **more}
    return {0: FlightRecord(0, mine, BOTH, "error"), 1: FlightRecord(1, theirs, BOTH, **states)}


W, B, END = ("all_reduce", ((1000,),), 10), ("all_reduce", ((10,),), 11), ("barrier", (), 12)


@pytest.mark.parametrize("world_size", [2, 3, 4])
@pytest.mark.parametrize("cause", CAUSES)
def test_random_faults_are_named(cause, world_size):
    for seed in range(5):
        job = Job.drawn(cause, world_size, random.Random(seed))
        found = diagnose_hang(simulated_records(job, world_size))
        assert (found.cause, found.rank) == (cause, None if cause == "send" else job.rank), (job, found)
        assert f"rank {job.rank}" in str(found) or (cause == "send" and str(job.rank) in str(found).split("wait")[0])


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_a_job_without_a_fault_is_not_accused(world_size):
    records = simulated_records(Job("", 0), world_size)
    found = diagnose_hang(records)
    assert (found.cause, found.rank, first_mismatch(records)) == ("", None, None)
    assert "the same collectives" in found.words


def test_a_call_that_no_recorder_has_kept_is_no_difference():
    kept = [call for call in calls(*[W] * 5) if call.number != 3]
    assert first_mismatch(two(tuple(kept), tuple(kept))) is None
    apart = (*kept[:3], calls(*[W] * 4, B)[4])
    assert first_mismatch(two(tuple(kept), apart)) == ("0", 5)


def test_without_records():
    with pytest.raises(ValueError, match="expected those of at least one rank, got none. Take error.records"):
        diagnose_hang({})


def test_two_ranks_without_steps_before_are_not_sure():
    found = diagnose_hang(two(calls(W), calls(("all_reduce", ((999,),), 10))))
    assert (found.cause, found.number, found.is_sure, found.rank_is_sure) == ("size", 1, False, False)
    assert str(found).endswith("It may also be rank 0: too few steps come before to decide.")


@pytest.mark.parametrize(
    ("cause", "rank"), [(cause, rank) for cause in CAUSES for rank in range(1 if cause == "save" else 2)]
)
def test_a_fault_in_the_first_step_of_two_ranks_is_named_or_in_doubt(cause, rank):
    found = diagnose_hang(simulated_records(Job(cause, rank, 0), 2))
    assert found.is_sure == (cause in ("data", "save", "dead", "stopped", "slow"))
    both = "It may also be rank" in str(found) or "had more minibatches" in str(found) or cause == "send"
    assert found.is_sure == found.rank_is_sure == (not both)
    assert not found.is_sure or (found.cause, found.rank) == (cause, rank)


def test_one_line_that_calls_both_leaves_it_open_whether_a_call_was_left_out_or_two_were_swapped():
    one = [(name, sizes, 10) for name, sizes, _ in (W, B)]
    found = diagnose_hang(two(calls(*one, *one, *one), calls(*one, *one, one[1])))
    assert (found.cause, found.rank, found.number, found.is_sure) == ("missing", 1, 5, False) and found.rank_is_sure
    assert str(found).endswith("It may also have called the two in a different order: one line calls both.")
    of_three = two(calls(*one, *one, *one), calls(*one, *one, one[1]))
    of_three[2] = replace(of_three[0], rank=2)
    assert diagnose_hang(of_three).rank == 1 and not diagnose_hang(of_three).is_sure


def waiting_for(*running, world_size=3, last=W):
    """Records of ranks that agree on two steps; then the ranks `running` are elsewhere, and the others call `last`."""
    before, groups = (W, B, END, W, B, END), {"0": tuple(range(world_size))}
    here = (("train.py", 30, "compute"),)
    return {
        rank: FlightRecord(rank, calls(*before), groups, "running", here)
        if rank in running
        else FlightRecord(rank, calls(*before, last), groups, "error")
        for rank in range(world_size)
    }


def test_a_rank_that_waits_alone_is_not_accused_while_the_others_are_elsewhere():
    found = diagnose_hang(waiting_for(1, 2))
    assert (found.cause, found.rank_is_sure, found.is_sure) == ("elsewhere", False, False)
    assert found.words.startswith("rank 1 did not reach all_reduce no. 7 of [1000] float32")
    assert found.words.endswith(
        "it is in compute, train.py line 30. It may also be rank 2: several ranks are not there."
    )
    found = diagnose_hang(waiting_for(1))
    assert (found.cause, found.rank, found.rank_is_sure) == ("elsewhere", 1, True)


def test_of_two_ranks_one_may_be_slow_or_the_other_may_call_what_it_should_not():
    new = ("all_reduce", ((1,),), 20)
    found = diagnose_hang(waiting_for(1, world_size=2, last=new))
    assert (found.rank, found.rank_is_sure) == (1, False) and "It may also be rank 0: that call came in no" in str(
        found
    )
    assert diagnose_hang(waiting_for(1, world_size=2)).rank_is_sure


def test_a_rank_that_waits_in_a_receive_is_not_called_slow():
    records = waiting_for(1, world_size=2)
    c10d = ("/x/torch/distributed/distributed_c10d.py", 5, "recv")
    records[1] = replace(records[1], collectives=(), frames=(*records[1].frames, c10d))
    records[0] = replace(records[0], collectives=calls(W))
    assert not diagnose_hang(records).rank_is_sure


def test_a_rank_without_a_record_leaves_the_rank_open():
    records = waiting_for(1)
    records[2] = FlightRecord(2, (), None, "error", (), "it did not answer in time")
    found = diagnose_hang(records)
    assert (found.rank, found.rank_is_sure, found.is_sure) == (1, False, False)
    assert found.words.endswith("But rank 2 gave no record: it did not answer in time.")
    alone = diagnose_hang({0: records[0], 2: records[2]})
    assert (alone.cause, alone.rank, alone.is_sure) == ("unknown", None, False) and "rank 2 gave no record" in str(
        alone
    )


def test_an_aborted_process_without_a_record_is_not_accused_and_a_killed_one_is():
    records = waiting_for(1)
    gone = FlightRecord(0, (), None, "died", (), "its process has ended")
    killed = diagnose_hang(records | {0: replace(gone, exitcode=-9)})
    assert (killed.cause, killed.rank, killed.rank_is_sure) == ("dead", 0, True)
    aborted = diagnose_hang(records | {0: replace(gone, exitcode=-6)})
    assert (aborted.cause, aborted.rank_is_sure) == ("dead", False) and "gave no record" in str(aborted)


def test_a_silent_rank_is_not_accused_if_a_rank_was_aborted():
    silent = FlightRecord(1, (), None, "silent", (), "it did not answer")
    records = waiting_for(world_size=2)
    assert diagnose_hang(records | {1: silent}).rank_is_sure
    records[0] = replace(records[0], state="died", exitcode=-6)
    assert not diagnose_hang(records | {1: silent}).rank_is_sure


def test_with_two_ranks_the_steps_before_decide():
    before = (W, B, END, W, B, END)
    found = diagnose_hang(two(calls(*before, ("all_reduce", ((999,),), 10)), calls(*before, W)))
    assert (found.cause, found.rank, found.number, found.is_sure) == ("size", 0, 7, True)


def test_a_lone_call_at_a_new_line_is_an_extra_one():
    before = (W, B, END, W, B, END)
    records = two(calls(*before, ("all_reduce", ((1,),), 20)), calls(*before), state="done")
    found = diagnose_hang(records)
    assert (found.cause, found.rank) == ("extra", 0) and "no other rank did" in found.words


def test_a_rank_that_returned_between_two_steps_may_have_had_fewer_and_in_a_step_left_out_a_collective():
    before = (W, B, END, W, B, END)
    found = diagnose_hang(two(calls(*before, W), calls(*before), state="done"))
    assert (found.cause, found.rank, found.number, found.is_sure) == ("uneven", 1, 7, False)
    assert (
        found.words.endswith("Rank 1 had fewer minibatches or left out a step, or rank 0 had more minibatches.")
        and "line 10" in found.words
    )
    found = diagnose_hang(two(calls(*before, W, B), calls(*before, W), state="done"))
    assert (found.cause, found.rank, found.number, found.is_sure) == ("missing", 1, 8, True)


def test_equal_sizes_that_got_out_of_step_are_found_where_they_began():
    same = [("all_reduce", ((10,),), line) for line in (10, 11, 12)]
    mine, theirs = calls(*same, *same, *same), calls(*same, same[0], same[2], *same)
    found = diagnose_hang(two(mine, theirs, state="done"))
    assert first_mismatch(two(mine, theirs, state="done")) == ("0", 5)
    assert (found.cause, found.rank) == ("missing", 1)


def test_two_of_three_wrong_ranks_are_the_majority():
    """As the chapter says: made for one fault."""
    records = simulated_records(Job("missing", 1), 3)
    found = diagnose_hang(records | {2: replace(records[1], rank=2)})
    assert (found.rank, found.rank_is_sure) == (0, True)


def test_of_two_ranks_that_differ_from_two_others_it_is_open_which_is_wrong():
    groups, before = {"0": (0, 1, 2, 3)}, (W, B, END, W, B, END)
    records = {r: FlightRecord(r, calls(*before, last), groups, "error") for r, last in enumerate((W, W, B, END))}
    found = diagnose_hang(records)
    assert (found.rank, found.rank_is_sure, found.is_sure) == (2, False, False)
    assert str(found).endswith("It may also be a different rank: the others do not agree either.")


def test_a_rank_that_waits_for_the_next_one_is_not_blamed_for_it():
    """Rank 3 leaves out the all-reduce of its host; rank 2 waits for it, and all others wait for rank 2."""
    groups = {r: {"0": (0, 1, 2, 3), h: m} for r, (h, m) in enumerate([("1", (0, 1))] * 2 + [("2", (2, 3))] * 2)}
    host, world = ("all_reduce", ((8,),), 10), ("all_reduce", ((8,),), 11)
    stack = (("train.py", 1, "step"), (C10D, 1, "all_reduce"))

    def record(rank, *, leaves_out=False, waits=False):
        of = "12"[rank // 2]
        called = []
        for step in (1, 2, 3):
            if step < 3 or not leaves_out:
                called += calls(host, group=of, first=step)
            if step < 3 or not waits:
                called += calls(world, first=step)
        return FlightRecord(rank, tuple(called), groups[rank], "error", stack)

    records = {r: record(r, leaves_out=r == 3, waits=r == 2) for r in range(4)}
    found = diagnose_hang(records)
    assert (found.cause, found.rank, found.rank_is_sure) == ("missing", 3, True)
    stuck = {**records, 3: replace(records[3], collectives=records[3].collectives[:-1], state="running", frames=HERE)}
    found = diagnose_hang(stuck)
    assert (found.cause, found.rank, found.rank_is_sure) == ("elsewhere", 3, True)


HERE = (("train.py", 30, "compute"),)


def test_calls_that_agree_in_a_job_that_failed_are_unknown():
    stack = (("train.py", 10, "step"), (C10D, 1, "broadcast"))
    agree = calls(W, B, W, ("broadcast", ((3,),), 10))
    found = diagnose_hang({r: FlightRecord(r, agree, BOTH, "error", stack) for r in range(2)})
    assert (found.cause, found.rank, found.is_sure) == ("unknown", None, False)
    assert "the recorder does not show src, dst, the splits" in found.words and "rank 1 is in " in found.words


def test_a_rank_that_waits_in_an_earlier_collective_is_not_guilty():
    stack = (("train.py", 10, "step"), (C10D, 1, "broadcast"))
    ahead, behind = calls(W, ("broadcast", ((3,),), 10), B), calls(W, ("broadcast", ((3,),), 10))
    groups = {"0": (0, 1, 2)}
    records = {r: FlightRecord(r, ahead if r == 1 else behind, groups, "error", stack) for r in range(3)}
    found = diagnose_hang(records)
    assert found.cause == "unknown" and not found.rank_is_sure and "still waits in broadcast no. 2" in found.words


@pytest.mark.parametrize(
    "frame",
    [(C10D, 5, "recv"), ("/x/torch/autograd/graph.py", 5, "_engine_run_backward"), (__file__, 0, "step")],
    ids=["receive", "backward", "wait"],
)
def test_a_stack_in_a_receive_a_backward_pass_or_a_wait_is_not_sure(frame):
    if frame[0] == __file__:
        frame = (__file__, inspect.getsourcelines(wait_for)[1] + 1, "step")
    records = waiting_for(1)
    found = diagnose_hang({**records, 1: replace(records[1], frames=(*HERE, frame))})
    assert not found.rank_is_sure and "It may wait there for a different rank" in found.words


def wait_for(work):
    work.wait()


def test_a_rank_that_raised_an_error_of_its_own_is_named():
    records = waiting_for(1)
    found = diagnose_hang({**records, 1: replace(records[1], state="error", frames=HERE)})
    assert (found.cause, found.rank, found.is_sure) == ("error", 1, True) and "compute, train.py line 30" in found.words


@pytest.mark.parametrize(
    ("message", "is_sure"), [("Timed out waiting 2000ms", True), ("inLengthPerRank[myRank] == outLengthPerRank", False)]
)
def test_a_rank_that_has_not_come_yet_is_not_accused_if_a_call_raised_an_error_at_once(message, is_sure):
    records = waiting_for(1)
    stack = (("train.py", 10, "step"), (C10D, 1, "all_reduce"))
    found = diagnose_hang({**records, 0: replace(records[0], frames=stack, error=message)})
    assert (found.rank, found.rank_is_sure) == (1, is_sure)
    assert is_sure or "It may also be rank 0, whose call raised an error at once" in found.words


def test_a_rank_that_is_done_is_not_said_to_wait():
    gone = FlightRecord(1, (), None, "died", (), "its process has ended", -9)
    done = FlightRecord(0, calls(W), BOTH, "done")
    assert diagnose_hang({0: done, 1: gone}).words == "rank 1: its process has ended."
    two_gone = diagnose_hang({0: replace(gone, rank=0), 1: gone})
    assert (two_gone.cause, two_gone.rank_is_sure) == ("dead", False)


CROSSED = """
def swap(mine, theirs, neighbour):
    dist.send(mine, neighbour)
    dist.recv(theirs, neighbour)
"""


@pytest.fixture
def inside(tmp_path):
    """A function that gives the record of a rank that is in a send or a receive of a file with that code."""

    def record(rank, name, *, file="swap.py", code=CROSSED, state="error", called=(W, B, END), num_ranks=2, **more):
        file = tmp_path / file
        file.write_text(code)
        frames = ((str(file), 3, "swap"), ("/x/torch/distributed/c10d_logger.py", 83, "wrapper"), (C10D, 1, name))
        more = {"error": "Timed out waiting 3000ms for send operation to complete", **more}
        return FlightRecord(rank, calls(*called), {"0": tuple(range(num_ranks))}, state, frames, **more)

    return record


@pytest.mark.parametrize(
    ("name", "mine", "opposite"),
    [("send", "send", "receive"), ("recv", "receive", "send"), ("send_object_list", "send", "receive")],
)
def test_ranks_that_all_send_or_all_receive_are_the_cause_and_neither_is_named(inside, name, mine, opposite):
    found = diagnose_hang({0: inside(0, name), 1: inside(1, name, state="running", file="other_swap.py")})
    assert (found.cause, found.rank, found.is_sure, found.rank_is_sure) == ("send", None, False, False)
    assert found.words.startswith(f"ranks 0 and 1 wait in a {mine}, and no rank is in a {opposite}. ")
    assert f"let one {opposite} first, or use i{'send' if mine == 'send' else 'recv'} or batch_" in found.words
    assert f"A rank may also have left out a {opposite}. Which rank is wrong is not recorded: " in found.words
    assert found.words.endswith("rank 0 is in swap, swap.py line 3, rank 1 is in swap, other_swap.py line 3.")
    assert ("gloo" in found.words) == (mine == "send")
    assert len(f"not sure which rank is at fault: {found.words}") < 400, "of a line of a message"


@pytest.mark.parametrize("num_ranks", [3, 4])
def test_ranks_that_wait_in_a_collective_for_two_that_send_change_nothing(inside, num_ranks):
    stack = (("train.py", 10, "step"), (C10D, 1, "all_reduce"))
    everyone = {"0": tuple(range(num_ranks))}
    waits = {r: FlightRecord(r, calls(W, B, END, W), everyone, "error", stack) for r in range(2, num_ranks)}
    pair = {r: inside(r, "send", num_ranks=num_ranks) for r in range(2)}
    found = diagnose_hang(pair | waits)
    assert (found.cause, found.rank, found.group, found.number) == ("send", None, "0", 4)
    assert found.words.startswith("ranks 0 and 1 wait in a send")
    for other in (
        replace(waits[2], frames=HERE, state="running", collectives=calls(W, B, END)),  # it may have to receive
        replace(waits[2], frames=(), state="done"),
        replace(waits[2], missing="it did not answer in time", collectives=()),
        replace(waits[2], error="an all_reduce of a type that gloo has not"),
        replace(waits[2], collectives=calls(W, B, END, B)) if num_ranks > 3 else replace(waits[2], frames=()),
    ):
        assert diagnose_hang(pair | waits | {2: other}).cause != "send", other


def test_one_rank_that_sends_while_all_others_wait_in_a_collective_is_not_the_cause(inside):
    stack = (("train.py", 10, "step"), (C10D, 1, "all_reduce"))
    waits = {r: replace(record, frames=stack) for r, record in waiting_for(1).items()}
    found = diagnose_hang(waits | {1: inside(1, "send", called=(W, B, END, W, B, END), num_ranks=3)})
    assert (found.cause, found.rank_is_sure) == ("unknown", False)


def test_three_ranks_that_send_in_a_circle(inside):
    found = diagnose_hang({r: inside(r, "send", num_ranks=3) for r in range(3)})
    assert found.cause == "send" and found.words.startswith("ranks 0, 1 and 2 wait in a send")
    assert found.words.endswith(": all are in swap, swap.py line 3.")


def test_a_send_is_not_the_cause_if_it_may_be_something_else(inside):
    send, gone = inside(0, "send"), FlightRecord(1, (), None, "died", (), "its process has ended", -9)
    batch = CROSSED + "\n\ndef begin(theirs, neighbour):\n    return dist.irecv(theirs, neighbour)\n"
    begun = CROSSED + "\n\ndef begin(mine, neighbour):\n    return dist.isend(mine, neighbour)\n"
    for what, records in {
        "the other one receives": (send, inside(1, "recv")),
        "a receive may have been begun": (send, inside(1, "send", code=batch, file="a.py")),
        "a send may have been begun": (inside(0, "recv", code=begun, file="b.py"), inside(1, "recv")),
        "the source is not at hand": (send, inside(1, "send", code="", file="c.py")),
        "the other one is dead": (send, gone),
        "the other one does not answer": (send, replace(gone, state="silent", exitcode=None)),
        "the other one raised an error": (send, FlightRecord(1, send.collectives, BOTH, "error", HERE)),
        "the send itself raised an error": (send, inside(1, "send", error="Invalid destination rank")),
        "the other one has returned": (send, FlightRecord(1, send.collectives, BOTH, "done")),
        "the other one is elsewhere": (send, FlightRecord(1, send.collectives, BOTH, "running", HERE)),
        "it waits for what it has begun": (send, inside(1, "batch_isend_irecv")),
        "nobody has waited for too long": (inside(0, "send", state="running"), inside(1, "send", state="running")),
        "their collectives differ": (send, inside(1, "send", called=(W, B, W))),
    }.items():
        assert diagnose_hang(dict(enumerate(records))).cause != "send", what
    assert diagnose_hang({0: send, 1: inside(1, "send", code=begun, file="b.py")}).cause == "send"


LOOP = """
for epoch in range(3):
    for batch in batches:
        all_reduce(gradient)
        all_reduce(loss)
    all_reduce(counts)
    if rank == 0:
        all_reduce(extra)
"""


@pytest.mark.parametrize(("world_size", "num_steps"), [(2, (3, 2)), (3, (3, 2, 3)), (3, (3, 2, 2)), (3, (3, 2, 1))])
def test_different_numbers_of_minibatches_are_found_by_the_loops_of_the_code(world_size, num_steps, tmp_path):
    file = tmp_path / "loop.py"
    file.write_text(LOOP)
    step, counts = [("all_reduce", ((8,),), 4), ("all_reduce", ((1,),), 5)], ("all_reduce", ((2,),), 6)
    everyone = {"0": tuple(range(world_size))}
    records, most = {}, min(num_steps) * 2 + 1
    for rank, n in enumerate(num_steps):
        called = calls(*step * n, counts, file=str(file))[:most]
        stack = ((str(file), 1, "step"), (C10D, 1, "all_reduce"))
        records[rank] = FlightRecord(rank, called, everyone, "error", stack)
    found = diagnose_hang(records)
    assert found.cause == "uneven"
    sure = {(3, 2): False, (3, 2, 3): True, (3, 2, 2): True, (3, 2, 1): True}[num_steps]
    assert found.rank_is_sure == sure
    if sure:
        assert found.rank == {(3, 2, 3): 1, (3, 2, 2): 0, (3, 2, 1): 2}[num_steps]
        assert found.is_sure == (num_steps != (3, 2, 2))  # rank 0 may have left out the counts
    else:
        assert "Rank 1 had fewer minibatches or left out a step, or rank 0 had more minibatches" in found.words


BRANCHES = {
    "a step with calls before and after": """
for X in batches:
    broadcast(lr)
    if torch.isnan(loss):
        continue
    all_reduce(weights)
    all_reduce(bias)
evaluate(counts)
""",
    "a guard": """
for X in batches:
    broadcast(lr)
    if not math.isnan(loss) and \\
        rank >= 0:
        all_reduce(weights)
        all_reduce(bias)
evaluate(counts)
""",
    "a different call instead": """
for X in batches:
    if loss.isfinite().all():
        all_reduce(weights)
    else:
        all_reduce(flag)
    all_reduce(bias)
    barrier()
""",
    "the whole step": """
for X in batches:
    loss = net(X)
    if torch.isnan(loss):
        continue
    all_reduce(weights)
    all_reduce(bias)
evaluate(counts)
""",
    "two ways past": """
for X in batches:
    barrier()
    if too_long(X):
        print("too long")
        continue
    broadcast(lr)
    if loss.isnan():
        continue
    try:
        all_reduce(weights)
        all_reduce(bias)
    except ValueError:
        pass
""",
    "an inner loop": """
for X in batches:
    barrier()
    if not loss.isnan():
        for gradient in gradients:
            all_reduce(weights)
""",
    "a branch that would show": """
for X in batches:
    barrier()
    if loss.isnan():
        continue
    if swapped:
        all_reduce(bias)
        all_reduce(weights)
    else:
        broadcast(lr)
        all_reduce(flag)
""",
    "no branch on a NaN": """
for X in batches:
    loss = net(X)
    if too_long(X):
        continue
    all_reduce(weights)
    all_reduce(bias)
evaluate(counts)
""",
}
LINES = {"broadcast(lr)": (3,), "all_reduce(weights)": (1000,), "all_reduce(bias)": (10,), "all_reduce(flag)": (1,),
         "evaluate(counts)": (2,), "barrier()": ()}  # fmt: skip


def skipping(name, world_size, guilty, folder, normal, skipped, num_steps=4, at=2):
    """Records of ranks that run a loop of BRANCHES up to the first mismatch; one leaves out calls in a step."""
    file = folder / "loop.py"
    file.write_text(BRANCHES[name])
    lines = BRANCHES[name].splitlines()

    def what(text):
        (number,) = [i for i, line in enumerate(lines, 1) if line.strip() == text]
        kind = text.partition("(")[0].replace("evaluate", "all_reduce")
        return kind, (LINES[text],) if LINES[text] else (), number

    of = {}
    for rank in range(world_size):
        steps = [skipped if (rank, step) == (guilty, at) else normal for step in range(num_steps)]
        after = ["evaluate(counts)"] * ("evaluate(counts)" in BRANCHES[name])
        of[rank] = [what(text) for text in [*sum(steps, []), *after]]
    kinds = list(zip(*([call[:2] for call in called] for called in of.values()), strict=False))
    first = next(i for i, here in enumerate(kinds) if len(set(here)) > 1)
    everyone, stack = {"0": tuple(range(world_size))}, ((str(file), 1, "step"), (C10D, 1, "all_reduce"))
    return {
        rank: FlightRecord(rank, calls(*called[: first + 1], file=str(file)), everyone, "error", stack)
        for rank, called in of.items()
    }


@pytest.mark.parametrize("world_size", [2, 3, 4])
@pytest.mark.parametrize("guilty", [0, 1])
@pytest.mark.parametrize(
    ("name", "normal", "skipped", "line", "sure"),
    [
        ("a step with calls before and after", ["broadcast(lr)", "all_reduce(weights)", "all_reduce(bias)"],
         ["broadcast(lr)"], "`if torch.isnan(loss)` (loop.py line 4)", False),  # or the broadcast twice
        ("a guard", ["broadcast(lr)", "all_reduce(weights)", "all_reduce(bias)"],
         ["broadcast(lr)"], "`if not math.isnan(loss) and rank >= 0` (loop.py line 4)", False),
        ("a different call instead", ["all_reduce(weights)", "all_reduce(bias)", "barrier()"],
         ["all_reduce(flag)", "all_reduce(bias)", "barrier()"], "`if loss.isfinite().all()` (loop.py line 3)", True),
    ],
)  # fmt: skip
def test_a_branch_on_a_nan_is_named_with_its_line(name, normal, skipped, line, sure, world_size, guilty, tmp_path):
    found = diagnose_hang(skipping(name, world_size, guilty, tmp_path, normal, skipped))
    assert found.rank == guilty or not found.rank_is_sure
    assert found.rank_is_sure == (world_size > 2 or name != "a different call instead")  # which of two is new?
    assert found.cause == "branch" and found.is_sure == (sure and found.rank_is_sure)
    assert line in found.words


@pytest.mark.parametrize("world_size", [2, 3, 4])
@pytest.mark.parametrize("name", ["the whole step", "no branch on a NaN"])
def test_a_step_that_a_nan_leaves_out_may_also_be_a_minibatch_fewer(name, world_size, tmp_path):
    normal = ["all_reduce(weights)", "all_reduce(bias)"]
    found = diagnose_hang(skipping(name, world_size, 1, tmp_path, normal, []))
    assert (found.cause, found.rank, found.rank_is_sure) == ("uneven", 1, world_size > 2)
    has_branch = name == "the whole step"
    assert found.is_sure == (world_size > 2 and not has_branch)
    assert ("left out a step at `if torch.isnan(loss)` (loop.py line 4)" in found.words) == has_branch


@pytest.mark.parametrize("world_size", [2, 3, 4])
@pytest.mark.parametrize(
    ("name", "normal", "num_left", "cause", "said"),
    [
        ("two ways past", ["barrier()", "broadcast(lr)", "all_reduce(weights)", "all_reduce(bias)"], 2, "branch",
         "It may also be `except ValueError` (loop.py line 13)."),
        ("two ways past", ["barrier()", "broadcast(lr)", "all_reduce(weights)", "all_reduce(bias)"], 1, "missing",
         "rank 1 left out a collective"),  # before the NaN was looked for
        ("an inner loop", ["barrier()", "all_reduce(weights)"], 1, "branch",
         "It may also be `for gradient in gradients` (loop.py line 5)."),
        ("a branch that would show", ["barrier()", "broadcast(lr)", "all_reduce(flag)"], 1, "branch",
         "`if loss.isnan()` (loop.py line 4) rank 1 went a way of its own. It may also have called this one twice."),
    ],
)  # fmt: skip
def test_a_second_way_past_the_calls_leaves_the_cause_open(name, normal, num_left, cause, said, world_size, tmp_path):
    found = diagnose_hang(skipping(name, world_size, 1, tmp_path, normal, normal[:num_left]))
    assert (found.cause, found.rank, found.rank_is_sure, found.is_sure) == (cause, 1, True, False)
    assert said in found.words


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_a_call_left_out_inside_of_a_branch_that_was_entered_is_not_the_branch(world_size, tmp_path):
    normal = ["broadcast(lr)", "all_reduce(weights)", "all_reduce(bias)"]
    for skipped in (["broadcast(lr)", "all_reduce(weights)"], ["broadcast(lr)", "all_reduce(bias)"]):
        found = diagnose_hang(skipping("a guard", world_size, 1, tmp_path, normal, skipped))
        assert (found.cause, found.rank) == ("missing", 1), found


def test_a_call_that_may_be_the_other_rank_s_to_make_decides_nothing_between_two():
    before = (W, B, END, W, B, END)
    found = diagnose_hang(two(calls(*before, ("all_reduce", ((1,),), 20)), calls(*before, W)))
    assert (found.cause, found.rank, found.rank_is_sure) == ("extra", 0, False)


def test_an_additional_call_of_the_same_size_is_found_where_it_was_made():
    same = [("all_reduce", ((10,),), line) for line in (10, 11)]
    mine, theirs = calls(*same, same[0], ("all_reduce", ((10,),), 30), same[1]), calls(*same, *same, END)
    three = two(theirs, mine) | {2: FlightRecord(2, theirs, BOTH, "error")}
    three = {r: replace(x, groups={"0": (0, 1, 2)}) for r, x in three.items()}
    found = diagnose_hang(three)
    assert (found.cause, found.rank, found.number) == ("extra", 1, 4)


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_noise_accuses_nobody_and_a_rank_that_is_late_in_each_step_is_slow(world_size):
    draw = random.Random(0)
    slow = 0
    for job in range(200):
        now, late = [0.0] * world_size, job % 2 == 0
        called = {rank: [] for rank in range(world_size)}
        for number in range(1, 25):
            for rank in range(world_size):
                now[rank] = max(now) if not rank else now[0]
            for rank in range(world_size):
                at_s = now[rank] + draw.uniform(0, 0.3) + (0.5 if late and rank == 1 else 0)
                call = Collective("all_reduce", ((8,),), "float32", "0", number, "train.py", 10, "step", at_s)
                called[rank].append(call)
            now = [max(of[-1].at_s for of in called.values())] * world_size
        groups = {"0": tuple(range(world_size))}
        records = {r: FlightRecord(r, tuple(of), groups, "done") for r, of in called.items()}
        found = diagnose_hang(records)
        if late:
            assert (found.cause, found.rank) == ("slow", 1)
            few = {r: replace(x, collectives=x.collectives[:9]) for r, x in records.items()}
            assert not diagnose_hang(few).cause
        else:
            slow += found.cause == "slow"
    assert slow <= 1


def test_branches_of_ranks_at_lines_of_their_own_are_no_fault():
    mine = [("broadcast", ((3,),), 20), W, ("broadcast", ((3,),), 20), W]
    theirs = [("broadcast", ((3,),), 22), W, ("broadcast", ((3,),), 22), W]
    assert first_mismatch(two(calls(*mine), calls(*theirs), state="done")) is None


def test_a_call_that_succeeds_with_another_type_is_found():
    mine, theirs = calls(W, B, W, B), list(calls(W, B, W, B))
    theirs[2] = replace(theirs[2], dtype="int32")
    found = diagnose_hang(two(mine, tuple(theirs), state="done"))
    assert (found.cause, found.rank, found.number) == ("dtype", 1, 3)
    assert "int32 is not float32" in found.words


def test_where_a_rank_is_says_whether_it_loads_or_saves():
    stuck = {"state": "running"}
    for frame, cause in (
        (("/x/torch/utils/data/dataloader.py", 5, "_next_data"), "data"),
        (("/x/torch/serialization.py", 5, "save"), "save"),
        (("train.py", 5, "save_checkpoint"), "save"),
        (("train.py", 5, "next_minibatch"), "data"),
        (("train.py", 5, "__getitem__"), "data"),
        (("train.py", 5, "compute"), "elsewhere"),
        (("train.py", 5, "train_batch"), "elsewhere"),
        (("/x/torch/nn/functional.py", 5, "batch_norm"), "elsewhere"),
        (("/x/torch/nn/modules/module.py", 5, "load_state_dict"), "elsewhere"),
        (("/x/torch/utils/checkpoint.py", 5, "checkpoint"), "elsewhere"),
        (("/x/torch/serialization.py", 5, "load"), "elsewhere"),
    ):
        found = diagnose_hang(two(calls(W, B), calls(W), **stuck, frames=(("train.py", 1, "step"), frame)))
        assert (found.cause, found.rank) == (cause, 1), frame


def test_groups_of_some_ranks_are_compared_among_themselves():
    groups = {"0": (0, 1, 2), "1": (0, 1), "2": (2,)}
    records = {
        0: FlightRecord(0, (*calls(W), *calls(B, B, group="1")), groups, "error"),
        1: FlightRecord(1, (*calls(W), *calls(B, group="1")), groups, "done"),
        2: FlightRecord(2, (*calls(W), *calls(END, END, END, group="2")), groups, "done"),
    }
    assert first_mismatch(records) == ("1", 2)
    assert diagnose_hang(records).group == "1"


def test_a_buffer_that_has_wrapped_is_compared_where_both_have_records():
    before = [W, B] * 6
    records = two(calls(*before), calls(*before[4:], W, first=5))
    assert first_mismatch(records) == ("0", 13)


@pytest.mark.slow
def test_a_silent_mismatch_of_types_is_found_after_the_call(gloo_pool):
    @by_value
    def sums():
        import torch
        import torch.distributed as dist

        for dtype in (torch.float32, torch.int32 if dist.get_rank() else torch.float32, torch.float32):
            dist.all_reduce(torch.ones(8, dtype=dtype))

    gloo_pool.run(sums)
    found = diagnose_hang(gloo_pool.flight_records())
    assert (found.cause, found.rank, found.number) == ("dtype", 1, first_mismatch(gloo_pool.flight_records())[1])


@pytest.mark.slow
def test_a_send_of_one_number_waits_until_its_receive_begins_on_gloo(gloo_pool):
    @by_value
    def seconds_of_a_send():
        import time

        import torch
        import torch.distributed as dist

        dist.barrier()
        began = time.perf_counter()
        if dist.get_rank() == 1:
            time.sleep(0.5)
            dist.recv(torch.empty(1), 0)
        else:
            dist.send(torch.ones(1), 1)
        return time.perf_counter() - began

    assert gloo_pool.run(seconds_of_a_send)[0] > 0.45


@pytest.mark.slow
def test_the_collective_check_of_pytorch_refuses_two_types(gloo_pool):
    @by_value
    def checked():
        import torch
        import torch.distributed as dist

        dist.set_debug_level(dist.DebugLevel.DETAIL)
        group = dist.new_group([0, 1])
        dist.set_debug_level(dist.DebugLevel.OFF)
        mine = torch.ones(8, dtype=[torch.float32, torch.int32][dist.get_rank()])
        try:
            dist.all_reduce(mine, group=group)
        except RuntimeError as error:
            return str(error), mine.tolist()
        return "", mine.tolist()

    for message, values in gloo_pool.run(checked):
        assert "Detected mismatch between collectives on ranks" in message and values == [1] * 8


def test_few_calls_do_not_show_who_is_slow():
    done = [{rank: FlightRecord(rank, calls(*[W] * n), BOTH, "done") for rank in (0, 1)} for n in (8, 10)]
    few, many = map(diagnose_hang, done)
    assert "8 are too few to say whether one of the ranks is slow" in few.words
    assert "none was late again and again" in many.words
