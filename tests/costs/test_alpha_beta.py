import math
from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d2lite.collectives.on_devices import all_reduce
from d2lite.collectives.plans import ALGORITHMS
from d2lite.costs.alpha_beta import (
    COST_FORMULAS,
    Cluster,
    Device,
    Link,
    all_reduce_seconds,
    lower_bound_n_bytes,
)
from d2lite.labs.chapter_04 import messages_seconds
from d2lite.trace import Send, Trace

NUMEL = 10_080  # divisible by 1 to 9, 12 and 16 devices, and each part has two halves
links = st.builds(
    Link,
    st.floats(1e-7, 1e-2),
    st.floats(1e6, 1e12),
    ports=st.integers(1, 3),
)


@cache
def sends(algorithm, k, per_host=None):
    """What all_reduce logs for k devices with NUMEL float32 numbers each."""
    trace = Trace()
    hosts = {"per_host": per_host or k} if algorithm == "two-level" else {}
    all_reduce([torch.zeros(NUMEL) for _ in range(k)], algorithm=algorithm, trace=trace, **hosts)
    return trace


def test_every_algorithm_that_is_logged_has_a_formula():
    assert set(ALGORITHMS) <= set(COST_FORMULAS)


@pytest.mark.parametrize("k", range(1, 10))
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(link=links)
def test_formulas_give_the_time_of_the_messages_that_were_sent(algorithm, k, link):
    logged = messages_seconds(sends(algorithm, k).sends, link)
    assert math.isclose(all_reduce_seconds(algorithm, k, 4 * NUMEL, link), logged, rel_tol=1e-9)


# the formula of the tree goes up inside the hosts first, and so does the logged tree for hosts of 1, 2, 4 ... devices
@pytest.mark.parametrize("hosts", (2, 3, 4))
@pytest.mark.parametrize(
    "algorithm, per_host", [(a, n) for a in ALGORITHMS for n in (1, 2, 3, 4) if (a, n) != ("tree", 3)]
)
@given(inside=links, across=links)
def test_formulas_hold_across_hosts_too(algorithm, per_host, hosts, inside, across):
    k, cluster = per_host * hosts, Cluster(inside, across, per_host)
    logged = messages_seconds(sends(algorithm, k, per_host).sends, cluster)
    assert math.isclose(all_reduce_seconds(algorithm, k, 4 * NUMEL, cluster), logged, rel_tol=1e-9)


@pytest.mark.parametrize("algorithm", ("naive", "parameter server", "ring", "ring both ways"))
@pytest.mark.parametrize("k, per_host", [(5, 2), (7, 3), (5, 4)])
@given(inside=links, across=links)
def test_formulas_hold_where_the_last_host_is_not_full(algorithm, k, per_host, inside, across):
    cluster = Cluster(*(replace(link, ports=1) for link in (inside, across)), per_host)
    logged = messages_seconds(sends(algorithm, k).sends, cluster)
    assert math.isclose(all_reduce_seconds(algorithm, k, 4 * NUMEL, cluster), logged, rel_tol=1e-9)


@pytest.mark.parametrize("k", (2, 3, 4, 8))
def test_steps_and_bytes_of_the_formulas_are_those_of_the_log(k):
    for algorithm in ALGORITHMS:
        trace = sends(algorithm, k)
        steps = all_reduce_seconds(algorithm, k, 0, Link(1.0, 1.0))  # one second per message, however long
        assert round(steps) == len(trace.steps)
        at_least = lower_bound_n_bytes(k, 4 * NUMEL)
        assert max(trace.sent_n_bytes()) >= at_least - 1e-6
        busy = all_reduce_seconds(algorithm, k, 4 * NUMEL, Link(0.0, 1.0))  # one second per byte
        assert busy >= at_least - 1e-6
        if algorithm in ("ring", "ring both ways", "two-level", "all pairs"):
            assert math.isclose(busy, at_least)
            assert all(math.isclose(n_bytes, at_least) for n_bytes in trace.sent_n_bytes())


@pytest.mark.parametrize("k", (2, 4, 8, 16))
def test_halving_and_doubling_by_its_messages(k):
    n_bytes, messages = float(4 * NUMEL), []
    halves = [n_bytes / 2**i for i in range(1, k.bit_length())]
    rounds = [(half, k // 2 ** (i + 1)) for i, half in enumerate(halves)]
    for step, (size, distance) in enumerate(rounds + rounds[::-1]):  # halving there, doubling back
        messages += [
            Send(step=step, src=i, dst=i ^ distance, chunk=0, n_bytes=size, adds=step < len(rounds)) for i in range(k)
        ]
    link = Link(3e-6, 2e9)
    assert math.isclose(
        all_reduce_seconds("halving-doubling", k, n_bytes, link), messages_seconds(messages, link), rel_tol=1e-9
    )


@given(
    algorithm=st.sampled_from(sorted(COST_FORMULAS)),
    k=st.integers(1, 3000),
    n_bytes=st.integers(0, 10**9),
    inside=links,
    across=links,
    per_host=st.integers(1, 16),
)
def test_more_bytes_never_take_less_time(algorithm, k, n_bytes, inside, across, per_host):
    cluster = Cluster(inside, across, per_host)
    seconds = all_reduce_seconds(algorithm, k, n_bytes, cluster)
    assert 0 <= seconds <= all_reduce_seconds(algorithm, k, 2 * n_bytes, cluster)
    assert (seconds == 0) == (k == 1)


@given(
    algorithm=st.sampled_from(sorted(COST_FORMULAS)), k=st.integers(1, 64), n_bytes=st.integers(0, 10**9), link=links
)
def test_hosts_with_equal_links_and_one_device_each_are_one_network(algorithm, k, n_bytes, link):
    one = all_reduce_seconds(algorithm, k, n_bytes, link)
    assert math.isclose(all_reduce_seconds(algorithm, k, n_bytes, Cluster(link, link, 1)), one, rel_tol=1e-9)
    assert all_reduce_seconds(algorithm, k, n_bytes, Cluster(link, link, 64)) == one


def test_the_ring_is_the_one_of_the_papers():
    # Thakur et al. 2005, section 4: 2 (k - 1) alpha + 2 (k - 1) / k n beta, the cost of adding left out
    assert math.isclose(all_reduce_seconds("ring", 4, 8e6, Link(1e-5, 1e9)), 6e-5 + 2 * 3 / 4 * 8e6 / 1e9)
    # both ways halves the bytes on each link, if there are two links
    one, two = Link(1e-5, 1e9), Link(1e-5, 1e9, ports=2)
    assert math.isclose(all_reduce_seconds("ring both ways", 4, 8e6, two), 6e-5 + 3 / 4 * 8e6 / 1e9)
    assert all_reduce_seconds("ring both ways", 4, 8e6, one) == all_reduce_seconds("ring", 4, 8e6, one)


def test_two_levels_beat_a_ring_where_the_network_starts_slowly():
    cluster = Cluster(Link(1e-6, 1e11), Link(1e-4, 1e9), 8)
    assert all_reduce_seconds("two-level", 64, 1e6, cluster) < all_reduce_seconds("ring", 64, 1e6, cluster) / 4


@pytest.mark.parametrize(
    "make, error, text",
    [
        (lambda: Link(-1e-6, 1e9), ValueError, "latency_s: expected a finite number from 0 on"),
        (lambda: Link(1e-6, 0), ValueError, "bandwidth_bytes_per_s: expected .* 10 gigabits"),
        (lambda: Link(1e-6, "fast"), TypeError, "bandwidth_bytes_per_s"),
        (lambda: Link(1e-6, 1e9, ports=0), ValueError, "ports: expected a positive whole number"),
        (lambda: Device(0), ValueError, "flops_per_s: expected .* Achieved, not peak"),
        (lambda: Device(1e12, -1), ValueError, "overhead_s"),
        (lambda: Cluster(Link(0, 1), Link(0, 1)), ValueError, "together with per_host"),
        (lambda: Cluster(Link(0, 1), Link(0, 1), 0), ValueError, "per_host"),
        (lambda: all_reduce_seconds("star", 2, 1, Link(0, 1)), ValueError, "algorithm: expected one of naive, "),
        (lambda: all_reduce_seconds("ring", 0, 1, Link(0, 1)), ValueError, "k: expected a positive whole number"),
    ],
)
def test_wrong_input_is_explained(make, error, text):
    with pytest.raises(error, match=text):
        make()
