import pytest
from hypothesis import given
from hypothesis import strategies as st

from d2lite.costs.alpha_beta import Device, Link
from d2lite.labs.chapter_08.step import predict_step
from d2lite.labs.chapter_08.workloads import named_workload
from d2lite.profiling.critical_path import critical_path, cut_waits, idle_events
from d2lite.trace import Event

MB = 1_000_000
# rank 1 computes longer; the all-reduce begins when it has arrived
STEP = [
    Event(rank=0, kind="forward", name="forward", start_s=0.0, end_s=1.0),
    Event(rank=0, kind="backward", name="backward 0", start_s=1.0, end_s=3.0),
    Event(rank=0, kind="all_reduce", name="bucket 0", start_s=3.0, end_s=6.0, n_bytes=MB),
    Event(rank=0, kind="update", name="update", start_s=6.0, end_s=7.5),
    Event(rank=1, kind="forward", name="forward", start_s=0.0, end_s=1.5),
    Event(rank=1, kind="backward", name="backward 0", start_s=1.5, end_s=5.0),
    Event(rank=1, kind="all_reduce", name="bucket 0", start_s=5.0, end_s=6.0, n_bytes=MB),
    Event(rank=1, kind="update", name="update", start_s=6.0, end_s=7.0),
]


def names(chain):
    return [(event.rank, event.name) for event in chain]


def test_the_chain_goes_through_the_rank_that_arrived_last():
    expected = [(1, "forward"), (1, "backward 0"), (1, "bucket 0"), (0, "update")]
    assert names(critical_path(STEP)) == expected
    assert names(critical_path(cut_waits(STEP))) == expected


def test_the_last_to_end_decides_and_not_the_last_to_begin():
    long, short = (
        Event(rank=0, kind="update", name="update", start_s=0.0, end_s=5.0),
        Event(rank=1, kind="update", name="update", start_s=3.0, end_s=4.0),
    )
    assert critical_path([long, short]) == critical_path([short, long]) == [long]


def test_waiting_is_cut_off_where_the_last_rank_arrives():
    found = cut_waits(STEP)
    assert [event for event in found if event.kind == "wait"] == [
        Event(rank=0, kind="wait", name="wait, bucket 0", start_s=3.0, end_s=5.0)
    ]
    assert Event(rank=0, kind="all_reduce", name="bucket 0", start_s=5.0, end_s=6.0, n_bytes=MB) in found
    assert [event for event in found if event.kind not in ("wait", "all_reduce")] == [
        event for event in STEP if event.kind != "all_reduce"
    ]
    assert cut_waits(found) == found


def test_idle_is_where_a_rank_does_not_compute():
    found = [(event.rank, event.start_s, event.end_s) for event in idle_events(STEP)]
    assert found == [(0, 3.0, 6.0), (1, 5.0, 6.0), (1, 7.0, 7.5)]


def test_without_events_there_is_no_path():
    with pytest.raises(ValueError, match="events: expected at least one Event"):
        critical_path([])
    assert critical_path([Event(rank=0, kind="wait", name="wait", start_s=0.0, end_s=1.0)]) == []


def test_a_short_event_inside_of_a_long_one_leaves_no_gap():
    spans = [(0.0, 5.0), (1.0, 2.0), (7.0, 8.0)]
    events = [
        Event(rank=0, kind="backward", name=f"part {i}", start_s=start, end_s=end)
        for i, (start, end) in enumerate(spans)
    ]
    assert idle_events(events) == [Event(rank=0, kind="idle", name="idle", start_s=5.0, end_s=7.0)]


times = st.floats(0.001, 1.0)
rounds = st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(times, min_size=n, max_size=n), min_size=1, max_size=4))


@given(rounds=rounds, send_s=times)
def test_in_steps_with_collectives_the_chain_has_no_gap(rounds, send_s):
    """Ranks compute, all-reduce, compute, ...: rounds[i][rank] is the i-th computing time."""
    events, free = [], [0.0] * len(rounds[0])
    for i, computing in enumerate(rounds):
        come = [begin + seconds for begin, seconds in zip(free, computing, strict=True)]
        done = max(come) + send_s
        for rank, (begin, end) in enumerate(zip(free, come, strict=True)):
            events += [Event(rank=rank, kind="backward", name=f"backward {i}", start_s=begin, end_s=end)]
            events += [Event(rank=rank, kind="all_reduce", name=f"bucket {i}", start_s=end, end_s=done, n_bytes=MB)]
        free = [done] * len(free)
    for step in (events, cut_waits(events)):
        chain = critical_path(step)
        slowest = [computing.index(max(computing)) for computing in rounds]
        computed = [(event.rank, event.name) for event in chain if event.kind == "backward"]
        assert [max(rounds[i]) for i, _ in enumerate(rounds)] == [
            rounds[i][rank] for i, (rank, _) in enumerate(computed)
        ]
        assert len(computed) == len(slowest)
        length = sum(event.end_s - event.start_s for event in chain)
        assert length == pytest.approx(max(event.end_s for event in step))


@given(
    batch_size=st.integers(1, 512), speed=st.floats(1e9, 1e13), bandwidth=st.floats(1e7, 1e11), overlap=st.booleans()
)
def test_in_a_predicted_step_the_chain_has_no_gap(batch_size, speed, bandwidth, overlap):
    caps = (100_000, 200_000)
    net, link = named_workload("LeNet"), Link(1e-6, bandwidth)
    step = predict_step(net, batch_size, 2, Device(speed, 1e-3), link, overlap=overlap, caps=caps)
    chain = critical_path(list(step.events))
    assert chain[0].start_s == 0 and chain[-1].end_s == step.seconds
    for one, following in zip(chain, chain[1:], strict=False):
        assert following.start_s == pytest.approx(one.end_s, abs=1e-8)


spans = st.tuples(st.integers(0, 3), st.sampled_from(["a", "b", "c"]), times, times, st.sampled_from([0, MB]))


@given(drawn=st.lists(spans, min_size=1, max_size=20))
def test_whatever_the_clocks_say_it_ends_and_goes_forward(drawn):
    kinds = {0: "backward", MB: "all_reduce"}
    events = [
        Event(rank=rank, kind=kinds[n], name=name, start_s=start, end_s=start + long, n_bytes=n)
        for rank, name, start, long, n in drawn
    ]
    chain = critical_path(events)
    assert chain and len(set(chain)) == len(chain) and set(chain) <= set(events)
    starts = [event.start_s for event in chain]
    if not any(event.n_bytes for event in events):
        assert chain[-1].end_s == max(event.end_s for event in events)
        assert starts == sorted(starts)
    for event in cut_waits(events) + idle_events(events):
        assert event.start_s <= event.end_s
