"""Schedules, plans and traces: causal, complete, and with the bytes and steps that theory says."""

from math import ceil, log2

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d2lite.collectives import all_pairs, naive, parameter_server, ring, tree, two_level
from d2lite.collectives.execute import exchange, execute
from d2lite.collectives.on_devices import all_gather, all_reduce, broadcast, reduce, reduce_scatter
from d2lite.collectives.plans import ALGORITHMS, COLLECTIVES, cut_into_chunks, make_plan
from d2lite.collectives.ring import ring_all_gather, ring_reduce_scatter
from d2lite.collectives.schedule import Move, Plan, in_one_step, relabel, reverse, side_by_side
from d2lite.collectives.tree import tree_broadcast, tree_reduce, tree_scatter
from d2lite.collectives.two_level import hosts_of, two_level_reduce_scatter
from d2lite.costs.alpha_beta import lower_bound_n_bytes
from d2lite.trace import Send, Trace

CALLS = dict(zip(COLLECTIVES, (all_reduce, broadcast, reduce, reduce_scatter, all_gather), strict=True))
EACH = pytest.mark.parametrize("algorithm", ALGORITHMS)
WORLDS = st.integers(1, 9)
BOUND = ("ring", "ring both ways", "two-level", "all pairs")  # those that reach the lower bound


def trace_of(collective, algorithm, k, n, **options):
    """The Trace of a collective of k tensors with n numbers of 4 bytes."""
    trace = Trace()
    CALLS[collective]([torch.zeros(n) for _ in range(k)], algorithm=algorithm, trace=trace, **options)
    return trace


@EACH
@given(collective=st.sampled_from(COLLECTIVES), k=WORLDS, n=st.integers(0, 40), root=st.integers(0, 8))
def test_devices_send_only_what_they_hold_and_end_with_what_they_want(algorithm, collective, k, n, root):
    root %= k
    options = {"broadcast": {"src": root}, "reduce": {"dst": root}}.get(collective, {})
    trace = trace_of(collective, algorithm, k, n, **options)
    start, end = trace.replay()[0], trace.replay()[-1]  # raises where a device sends what it does not hold
    owners = make_plan(collective, algorithm, k, root).owners
    chunks = range(len(owners))
    everything = frozenset(range(k))
    whole = {
        "broadcast": [frozenset({root})] * len(owners),
        "all_gather": [frozenset({c * k // len(owners)}) for c in chunks],
    }
    whole = whole.get(collective, [everything] * len(owners))
    assert trace.whole() == whole and sum(trace.chunk_n_bytes) == 4 * n
    if collective == "reduce":
        assert end[root] == whole
    elif collective == "reduce_scatter":
        assert all(end[c * k // len(owners)][c] == everything for c in chunks)
    else:
        assert end == [whole] * k
    if collective in ("all_reduce", "reduce", "reduce_scatter"):
        assert start == [[frozenset({i})] * len(owners) for i in range(k)]
    else:
        assert all((start[i][c] == whole[c]) == (owners[c] == i) for i in range(k) for c in chunks)
    for i, sends in enumerate(trace.steps):
        assert sends and all(send.step == i and send.src != send.dst for send in sends)
        assert all(send.n_bytes == trace.chunk_n_bytes[send.chunk] for send in sends)


@EACH
@given(k=WORLDS, n=st.integers(0, 60))
def test_each_device_receives_once_what_it_lacks(algorithm, k, n):
    trace = trace_of("all_reduce", algorithm, k, n)
    assert sum(trace.sent_n_bytes()) == sum(trace.received_n_bytes()) == 2 * (k - 1) * 4 * n  # the same for all
    half = len(trace.steps) // 2
    assert sum(trace.sent_n_bytes(half)) == (k - 1) * 4 * n and trace.sent_n_bytes(0) == [0] * k
    assert {send.adds for sends in trace.steps[:half] for send in sends} <= {True}
    assert {send.adds for sends in trace.steps[half:] for send in sends} <= {False}


@given(k=WORLDS, n=st.integers(0, 60))
def test_bytes_of_the_ring_are_the_exact_sums_of_its_chunks(k, n):
    trace = trace_of("all_reduce", "ring", k, n)
    sizes = trace.chunk_n_bytes
    assert sizes == [4 * len(part) for part in torch.zeros(n).tensor_split(k)]
    assert trace.sent_n_bytes() == [2 * 4 * n - sizes[i] - sizes[(i + 1) % k] for i in range(k)]
    assert all({send.dst for send in sends} == set(range(k)) for sends in trace.steps)  # no device waits


@pytest.mark.parametrize("algorithm", BOUND)
@given(k=WORLDS, n=st.integers(0, 20))
def test_lower_bound_is_reached_where_chunks_are_equal(algorithm, k, n):
    pieces = 2 if algorithm == "ring both ways" else 1
    trace = trace_of("all_reduce", algorithm, k, pieces * k * n)
    assert trace.sent_n_bytes() == trace.received_n_bytes() == [lower_bound_n_bytes(k, 4 * pieces * k * n)] * k


@given(k=WORLDS)
def test_bytes_of_the_root(k):
    rounds = ceil(log2(k))
    for algorithm, sent in (("naive", k - 1), ("parameter server", k - 1), ("tree", rounds)):
        trace = trace_of("all_reduce", algorithm, k, 1)
        assert max(trace.sent_n_bytes()) == trace.sent_n_bytes()[0] == 4 * sent == trace.received_n_bytes()[0]
    one = trace_of("all_reduce", "naive", k, 1).steps
    assert all(len(sends) == 1 for sends in one)


@given(k=WORLDS)
def test_number_of_steps(k):
    one_by_one, halves = k - 1, ceil(log2(k))
    at_once = 1 if k > 1 else 0
    per_host = len(hosts_of(k)[0])
    two_levels = per_host - 1 + k // per_host - 1
    expected = {  # in the order of COLLECTIVES
        "naive": (2 * one_by_one, one_by_one, one_by_one, 2 * one_by_one, 2 * one_by_one),
        "tree": (2 * halves, halves, halves, 2 * halves, 2 * halves),
        "parameter server": (2 * at_once, at_once, at_once, 2 * at_once, 2 * at_once),
        "ring": (2 * one_by_one, 2 * one_by_one, 2 * one_by_one, one_by_one, one_by_one),
        "ring both ways": (2 * one_by_one, 2 * one_by_one, 2 * one_by_one, one_by_one, one_by_one),
        "two-level": (2 * two_levels, one_by_one + two_levels, two_levels + one_by_one, two_levels, two_levels),
        "all pairs": (2 * at_once, 2 * at_once, 2 * at_once, at_once, at_once),
    }
    assert {a: tuple(len(trace_of(c, a, k, 5).steps) for c in COLLECTIVES) for a in ALGORITHMS} == expected


def test_both_ways_sends_half_to_each_neighbour():
    for sends in trace_of("all_reduce", "ring both ways", 5, 20).steps:
        for i in range(5):
            assert {(s.dst - i) % 5: s.n_bytes for s in sends if s.src == i} == {1: 8, 4: 8}


@pytest.mark.parametrize(("k", "per_host"), [(8, 4), (8, 2), (6, 3), (9, 3), (4, 4), (4, 1)])
def test_two_levels_cross_hosts_with_little(k, per_host):
    trace = trace_of("all_reduce", "two-level", k, 360, per_host=per_host)
    hosts = k // per_host
    crossing = [s for s in trace.sends if s.src // per_host != s.dst // per_host]
    assert sum(s.n_bytes for s in crossing) == hosts * lower_bound_n_bytes(hosts, 4 * 360)  # as one ring of all hosts
    assert len(trace.steps) == 2 * (per_host - 1 + hosts - 1)


def test_hosts():
    assert hosts_of(8) == [[0, 1, 2, 3], [4, 5, 6, 7]] and hosts_of(6, 2) == [[0, 1], [2, 3], [4, 5]]
    assert hosts_of(1) == [[0]] and hosts_of(5) == [[0], [1], [2], [3], [4]] and len(hosts_of(9)) == 3
    with pytest.raises(ValueError, match=r"per_host: expected a divisor of 8 \(devices\), got 3"):
        two_level_reduce_scatter(8, 3)
    with pytest.raises(ValueError, match="per_host: expected a whole number from 1 to 2, got 4"):
        hosts_of(2, 4)


def test_the_ring_as_the_lesson_shows_it():
    assert ring_reduce_scatter(3) == [[(0, 1, 2), (1, 2, 0), (2, 0, 1)], [(0, 1, 1), (1, 2, 2), (2, 0, 0)]]
    assert ring_all_gather(3) == [[(0, 1, 0), (1, 2, 1), (2, 0, 2)], [(0, 1, 2), (1, 2, 0), (2, 0, 1)]]
    assert ring_reduce_scatter(1) == ring_all_gather(1) == []


def test_the_tree_crosses_the_list_once():
    assert tree_broadcast(6) == [[(0, 4, 0)], [(0, 2, 0)], [(0, 1, 0), (2, 3, 0), (4, 5, 0)]]
    assert tree_reduce(4, 3) == [[(0, 3, 0), (2, 1, 0)], [(1, 3, 0)]]
    assert tree_scatter(4, 1) == [[(1, 3, 3), (1, 3, 0)], [(1, 2, 2), (3, 0, 0)]]


@pytest.mark.parametrize("module", [naive, tree, parameter_server, ring, two_level, all_pairs])
def test_a_schedule_has_the_name_of_its_file_and_its_collective(module):
    file, names = module.__name__.split(".")[-1], set(module.__all__)
    assert names and all(name.startswith(f"{file}_") for name in names)
    assert all(name.endswith(("_broadcast", "_reduce", "_scatter", "_all_gather", "_gather")) for name in names)


def test_putting_schedules_together():
    one, two = [[Move(0, 1, 0)]], [[Move(1, 0, 0)], [Move(0, 1, 1)]]
    assert side_by_side(one, two) == [[(0, 1, 0), (1, 0, 0)], [(0, 1, 1)]] and side_by_side() == []
    assert in_one_step(two) == [[(1, 0, 0), (0, 1, 1)]] and in_one_step([]) == []
    assert reverse(two) == [[(1, 0, 1)], [(0, 1, 0)]]
    assert relabel(two, [5, 7]) == [[(7, 5, 0)], [(5, 7, 1)]] and relabel([], []) == []
    assert relabel(two, [0, 1], [[2, 3], []]) == [[(1, 0, 2), (1, 0, 3)], []]


@given(k=WORLDS, pieces=st.sampled_from([1, 2]), n=st.integers(0, 60))
def test_chunks_are_views_in_order(k, pieces, n):
    row = torch.arange(n)
    chunks = cut_into_chunks(row, k, k * pieces)
    assert len(chunks) == k * pieces and torch.cat(chunks).equal(row)
    assert len(cut_into_chunks(row, k, 1)) == 1 or k == 1
    for chunk in chunks:
        chunk.neg_()
    assert row.tolist() == [-i for i in range(n)]


def test_moves_of_a_step_are_made_at_the_same_time():
    chunks = [[torch.tensor([1.0])], [torch.tensor([10.0])], [torch.tensor([100.0])]]
    exchange([Move(0, 1, 0), Move(1, 2, 0), Move(2, 0, 0)], chunks, "sum")
    assert [row[0].item() for row in chunks] == [101, 11, 110]
    exchange([Move(0, 1, 0), Move(1, 0, 0)], chunks)
    assert [row[0].item() for row in chunks] == [11, 101, 110]


def test_replay_finds_what_is_wrong_with_a_schedule():
    k = 3
    late = [[Move(i, (i + 1) % k, (i - step) % k) for i in range(k)] for step in (0, 0)]  # the same chunk twice
    trace = Trace()
    execute(Plan([0, 1, 2], late, []), [[torch.ones(1) for _ in range(k)] for _ in range(k)], trace=trace)
    with pytest.raises(
        ValueError, match=r"step 1: device 0 sends chunk 0 to device 1, .* of devices \[0\] a second time"
    ):
        trace.replay()
    trace.start[0] = [frozenset()] * k
    with pytest.raises(ValueError, match="step 0: device 0 sends chunk 0 to device 1, and has none of it"):
        trace.replay()
    incomplete = Trace(
        start=[[{0}], [{1}], [{2}]],
        chunk_n_bytes=[4],
        steps=[[Send(step=0, src=0, dst=1, chunk=0, n_bytes=4, adds=True)]],
    )
    assert incomplete.replay()[-1] == [[{0}], [{0, 1}], [{2}]] != [incomplete.whole()] * k
    replaced = Trace(
        start=[[{0}], [{1}]], chunk_n_bytes=[4], steps=[[Send(step=0, src=0, dst=1, chunk=0, n_bytes=4, adds=False)]]
    )
    assert replaced.replay()[-1] == [[{0}], [{0}]]  # what was there is gone


def test_an_empty_trace():
    assert (Trace().world_size, Trace().sends, Trace().sent_n_bytes(), Trace().replay()) == (0, [], [], [[]])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("all-reduce", "ring", 2), ValueError, "collective: expected one of all_reduce, .*, got 'all-reduce'"),
        (("reduce", "Ring", 2), ValueError, "algorithm: expected one of naive, tree, .*, got 'Ring'"),
        (("reduce", "ring", 0), ValueError, "k: expected a positive whole number, got 0"),
        (("reduce", "ring", 2, 2), ValueError, "root: expected a device from 0 to 1, got 2"),
        (("reduce", "ring", 2, True), TypeError, r"root: expected a device from 0 to 1, got True \(bool\)"),
        (("reduce", "two-level", 4, 0, 3), ValueError, "per_host: expected a divisor of 4"),
    ],
)  # fmt: skip
def test_plans_that_make_no_sense_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        make_plan(*arguments)
