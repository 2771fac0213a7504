"""One function for each cause: each is reached, and a new cause is a function and an entry."""

import inspect
import random
import re

import pytest

from d2lite.labs.chapter_07 import faults
from notebook_ranks import hang_causes, hang_diagnosis
from notebook_ranks.flight_recorder import Collective, FlightRecord
from notebook_ranks.hang_causes import CAUSES, Diagnosis
from notebook_ranks.hang_evidence import Evidence
from notebook_ranks.hang_words import Fact, OtherCause, OtherRank

LATER = ("train.py", 30, "compute")
C10D = "/x/torch/distributed/distributed_c10d.py"


def named_by(records):
    """Return the name of the function that decides, and its diagnosis."""
    evidence = Evidence(records)
    return next((cause.__name__, found) for cause in CAUSES if (found := cause(evidence)) is not None)


def record(rank, names, state="error", *frames, **more):
    """A record of a rank that has called these collectives, each at a line of its own."""
    lines = {"broadcast": 10, "all_reduce": 11, "barrier": 12}
    called = [Collective(n, (), "", "0", i, "train.py", lines.get(n, 10), "f") for i, n in enumerate(names, 1)]
    return FlightRecord(rank, tuple(called), {"0": (0, 1)}, state, frames, **more)


STEP = ("broadcast", "all_reduce", "barrier")
GONE = record(1, (), "error", missing="it did not answer in time")
# {a function that no cause of `faults.CAUSES` reaches: the records of two ranks that do}
RECORDS = {
    "no_record": (record(0, STEP), GONE),
    "behind": (record(0, STEP * 2), record(1, STEP)),
    "held_up": (record(0, STEP * 2), record(1, STEP, "running", LATER, (C10D, 1, "recv"))),
    "error": (record(0, STEP * 2), record(1, STEP, "error", LATER)),
    "elsewhere": (record(0, STEP * 2), record(1, STEP, "running", LATER)),
    "not_the_same": (record(0, (*STEP, "broadcast")), record(1, (*STEP, "gather"))),
    "agree": (record(0, STEP), record(1, STEP)),
    "nothing": (record(0, STEP, "done"), record(1, STEP, "done")),
}


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("cause", faults.CAUSES)
def test_the_function_of_that_name_finds_a_cause(cause, world_size):
    for seed in range(2):
        job = faults.Job.drawn(cause, world_size, random.Random(seed))
        name, found = named_by(faults.simulated_records(job, world_size))
        assert name == found.cause == cause


@pytest.mark.parametrize("name", RECORDS)
def test_the_other_functions_find_something(name):
    decides, found = named_by(dict(enumerate(RECORDS[name])))
    assert decides == name
    assert found.cause == {"error": "error", "elsewhere": "elsewhere", "nothing": ""}.get(name, "unknown")


def test_no_function_is_without_a_job_above():
    assert {cause.__name__ for cause in CAUSES} == {*faults.CAUSES, *RECORDS}


def test_a_new_cause_is_one_function_and_one_entry(monkeypatch):
    def gathers(evidence):
        if evidence.pair is None or evidence.pair.own.name != "gather":
            return None
        return Diagnosis(cause="gathers", rank=evidence.suspect.rank, words="it gathers", is_sure=False)

    monkeypatch.setattr(hang_diagnosis, "CAUSES", (gathers, *CAUSES))
    for name, records in RECORDS.items():
        found = hang_diagnosis.diagnose_hang(dict(enumerate(records)))
        assert (found.cause == "gathers") == (name == "not_the_same")


def test_each_sentence_is_said_by_a_cause():
    said = set(re.findall(r"\b(?:Fact|OtherCause|OtherRank)\.[A-Z_]+", inspect.getsource(hang_causes)))
    assert said == {str(sentence) for sentence in (*Fact, *OtherCause, *OtherRank)}
