import math
import re
from dataclasses import replace

import pytest

from d2lite.costs.alpha_beta import COST_FORMULAS, Link
from d2lite.labs.chapter_08.scaling import GPUS, Setup, crossover, describe_scaling, predict_scaling
from d2lite.labs.chapter_08.workloads import named_workload

LENET = Setup("LeNet", 256, is_global=True)


def test_one_gpu_is_the_measure():
    for setup in (LENET, replace(LENET, is_global=False), replace(LENET, overhead_s=0.01, spread=0.1)):
        one = predict_scaling(setup, 1)
        assert math.isclose(one.efficiency, 1)
        steps = 60_000 / 256
        assert math.isclose(one.epoch_s, steps * one.step.seconds)
        assert math.isclose(one.gpu_hours, one.epoch_s / 3600)


@pytest.mark.parametrize("algorithm", COST_FORMULAS)
@pytest.mark.parametrize("is_global", (True, False))
def test_every_example_is_seen_once_an_epoch(is_global, algorithm):
    setup = replace(LENET, is_global=is_global, algorithm=algorithm)
    for k in GPUS:
        found = predict_scaling(setup, k)
        if found is None:
            assert is_global and k > 256
            continue
        examples = 256 if is_global else 256 * k
        assert math.isclose(found.epoch_s, 60_000 / examples * found.step.seconds)
        assert math.isclose(found.efficiency, predict_scaling(setup, 1).epoch_s / (k * found.epoch_s))
        compute_s = named_workload("LeNet").flops * examples / k / setup.device.flops_per_s
        assert math.isclose(found.step.compute_s, compute_s)


def test_gpus_go_from_one_to_ten_thousand():
    assert GPUS[0] == 1 and GPUS[-1] == 10_000 and list(GPUS) == sorted(set(GPUS))


def test_what_is_changed_changes_what_it_should():
    base = predict_scaling(LENET, 64)
    assert predict_scaling(replace(LENET, overlap=False), 64).epoch_s >= base.epoch_s
    assert predict_scaling(replace(LENET, spread=0.1), 64).step.wait_s > 0 == base.step.wait_s
    assert predict_scaling(replace(LENET, overhead_s=0.01), 64).step.overhead_s == 0.01
    slow = replace(LENET, across=Link(1e-3, 1e6))
    assert predict_scaling(slow, 64).epoch_s > base.epoch_s
    assert predict_scaling(slow, 8) == predict_scaling(LENET, 8)  # one host: nothing goes across


def test_too_small_a_model_is_explained_with_numbers():
    # D2L 13.5: about 3.0 s an epoch of 235 steps on one GPU, 12.8 ms each, and no meaningful speed-up with two
    text = describe_scaling(replace(LENET, overhead_s=0.0128), 2)
    speedup = float(re.search(r"([\d.]+) times as fast", text).group(1))
    assert 1.0 <= speedup < 1.05
    even = crossover(LENET)
    assert f"at a minibatch of {even}" in text
    two, one = predict_scaling(replace(LENET, batch_size=even), 2), predict_scaling(replace(LENET, batch_size=even), 1)
    assert two.epoch_s <= one.epoch_s
    less = replace(LENET, batch_size=even - 1)
    assert predict_scaling(less, 2).epoch_s > predict_scaling(less, 1).epoch_s


def test_the_summary_contains_what_was_found():
    setup = Setup("LeNet", 32, overhead_s=0.001)
    found = predict_scaling(setup, 64)
    text = describe_scaling(setup, 64, price=3.0)
    assert text.startswith("<b>Predicted for 64 GPUs")
    assert f"efficiency {found.efficiency:.0%}" in text
    assert "1 ms are overhead" in text and "GPU-hours" in text
    cost = float(re.search(r"costs ([\d.e-]+)", text).group(1))
    assert math.isclose(cost, 3 * found.gpu_hours, rel_tol=0.1)
    assert "costs" not in describe_scaling(setup, 64)
    assert describe_scaling(setup, 1).startswith("<b>Predicted for 1 GPU:")
    assert "cannot be divided among 512 GPUs" in describe_scaling(LENET, 512)
    assert "never slower" in describe_scaling(replace(setup, inside=Link(0, 1e15)), 2)
