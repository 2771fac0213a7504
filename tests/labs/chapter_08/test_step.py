import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d2lite.costs.alpha_beta import COST_FORMULAS, Cluster, Device, Link, all_reduce_seconds
from d2lite.labs.chapter_08.scaling import crossover_batch_size, strong_scaling, weak_scaling
from d2lite.labs.chapter_08.step import gpu_hours, predict_step
from d2lite.labs.chapter_08.workloads import Workload, named_workload

LINK = Link(1e-5, 1e9)
tensors = st.lists(st.tuples(st.integers(1, 10**8), st.integers(0, 10**9)), min_size=1, max_size=12).filter(
    lambda found: any(macs for _, macs in found)
)
workloads = tensors.map(lambda found: Workload("drawn", *zip(*found, strict=True)))
devices = st.builds(Device, st.floats(1e9, 1e14), st.floats(0, 1e-2))
links = st.builds(Link, st.floats(1e-7, 1e-3), st.floats(1e7, 1e12))


@given(workload=workloads, k=st.integers(1, 600), batch_size=st.integers(1, 512), device=devices, link=links)
def test_a_step_adds_up(workload, k, batch_size, device, link):
    for algorithm in ("ring", "tree"):
        step = predict_step(workload, batch_size, k, device, link, algorithm=algorithm, wait_s=0.5)
        parts = step.overhead_s + step.compute_s + step.exposed_s + step.wait_s
        assert math.isclose(step.seconds, parts, rel_tol=1e-9)
        assert math.isclose(step.compute_s, workload.flops * batch_size / device.flops_per_s, rel_tol=1e-9)
        assert sum(event.n_bytes for event in step.events) == (workload.total_n_bytes if k > 1 else 0)
        busy = [event for event in step.events if event.kind == "all_reduce"]
        assert math.isclose(sum(e.end_s - e.start_s for e in busy), step.communication_s, rel_tol=1e-9)
        for one, next_one in zip(busy, busy[1:], strict=False):
            assert next_one.start_s >= one.end_s  # the link carries one bucket at a time
        backward = [event for event in step.events if event.kind == "backward"]
        assert math.isclose(backward[-1].end_s, step.overhead_s + step.compute_s, rel_tol=1e-9)
        if k > 1:
            for bucket, ready in zip(busy, backward, strict=True):
                assert bucket.start_s >= ready.end_s * (1 - 1e-12)


@given(workload=workloads, k=st.integers(2, 64), batch_size=st.integers(1, 64), device=devices, link=links)
def test_overlap_helps_and_hides_no_more_than_there_is(workload, k, batch_size, device, link):
    with_overlap = predict_step(workload, batch_size, k, device, link)
    without = predict_step(workload, batch_size, k, device, link, overlap=False)
    assert with_overlap.seconds <= without.seconds * (1 + 1e-12)
    assert math.isclose(without.exposed_s, without.communication_s, rel_tol=1e-6, abs_tol=1e-12 * without.seconds)
    assert with_overlap.communication_s >= with_overlap.exposed_s * (1 - 1e-6) - 1e-12 * without.seconds
    one = predict_step(workload, batch_size, 1, device, link)
    assert one.seconds <= with_overlap.seconds
    assert one.communication_s == 0


def test_a_step_by_hand():
    # two layers: the second is ready after its backward pass of 2 s and takes 3 s to send, the first after 2 s more
    workload = Workload("two", (1_000_000, 3_000_000), (1, 1))
    device, link = Device(3.0), Link(0.0, 1e6)  # six operations per multiplication: 4 s, a third of it forward
    step = predict_step(workload, 1, 2, device, link, caps=(1,))
    spans = [(e.kind, round(e.start_s, 9), round(e.end_s, 9)) for e in step.events]
    third = 4 / 3
    assert spans == [
        ("forward", 0.0, round(third, 9)),
        ("backward", round(third, 9), round(2 * third, 9)),
        ("all_reduce", round(2 * third, 9), round(2 * third + 3, 9)),
        ("backward", round(2 * third, 9), 4.0),
        ("all_reduce", round(2 * third + 3, 9), round(2 * third + 4, 9)),
    ]
    assert math.isclose(step.exposed_s, 2 * third)


@given(workload=workloads, device=devices, link=links)
def test_efficiencies(workload, device, link):
    ks = (1, 2, 8)
    weak = weak_scaling(workload, 32, ks, device, link)
    strong = strong_scaling(workload, 32, ks, device, link)
    assert math.isclose(weak[1][1], 1) and math.isclose(strong[1][1], 1)
    for k in ks:
        assert 0 < strong[k][1] <= weak[k][1] * (1 + 1e-9) <= 1 + 2e-9
    assert math.isclose(strong[8][0].compute_s * 8, weak[8][0].compute_s)


@given(
    workload=workloads,
    device=devices,
    link=links,
    algorithm=st.sampled_from(sorted(COST_FORMULAS)),
    overlap=st.booleans(),
)
def test_the_crossover_is_where_two_devices_catch_up(workload, device, link, algorithm, overlap):
    settings = dict(algorithm=algorithm, overlap=overlap)
    found = crossover_batch_size(workload, device, link, **settings)

    def gain(batch_size):
        one = predict_step(workload, batch_size, 1, device, link).seconds
        return one - predict_step(workload, batch_size / 2, 2, device, link, **settings).seconds

    if found is None:
        assert gain(2**24) < 0
    else:
        assert gain(found) >= 0
        assert found == 2 or gain(found - 1) < 0


def test_the_crossover_without_overlap_is_where_half_the_arithmetic_pays_for_sending():
    workload, device = named_workload("LeNet"), Device(1e12)
    sending_s = all_reduce_seconds("ring", 2, workload.total_n_bytes, LINK)
    expected = math.ceil(2 * sending_s / (workload.flops / device.flops_per_s))
    assert crossover_batch_size(workload, device, LINK, overlap=False) == expected


def test_as_fast_as_one_device_is_fast_enough():
    workload = Workload("one layer", n_bytes=(2,), macs=(1,))  # sending takes 2 s, an example 1 s
    device = Device(flops_per_s=float(workload.flops))
    assert crossover_batch_size(workload, device, Link(0.0, 1.0), overlap=False) == 4


def test_one_host_or_many():
    cluster = Cluster(Link(1e-6, 1e12), Link(1e-5, 1e8), 4)
    workload, device = named_workload("LeNet"), Device(1e12)
    steps = [predict_step(workload, 64, k, device, cluster).seconds for k in (4, 5, 8)]
    assert steps[0] < steps[1] and steps[0] < steps[2]


def test_gpu_hours():
    assert gpu_hours(1800, 8) == 4


def test_wrong_input_is_explained():
    with pytest.raises(ValueError, match="k: expected a positive whole number"):
        predict_step(named_workload("LeNet"), 1, 0, Device(1.0), LINK)
