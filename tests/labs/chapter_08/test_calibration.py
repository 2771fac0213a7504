import math

import pytest
import torch

from d2lite import LeNet
from d2lite.costs.alpha_beta import Device, Link
from d2lite.labs.chapter_04.timed_on_ranks import measured_seconds, time_steps
from d2lite.labs.chapter_08.calibration import Calibration, calibrate, predicted_step
from d2lite.labs.chapter_08.workloads import named_workload
from d2lite.workers import Workers

LENET = named_workload("LeNet")


class Ranks:
    """A pool that returns made-up times instead of measuring."""

    backend = "gloo"

    def __init__(self, world_size, overhead_s=0.004, s_per_example=0.001, link=None):
        self.world_size, self.overhead_s, self.s_per_example, self.link = world_size, overhead_s, s_per_example, link
        self.sent = []

    def run(self, fn, *args):
        if fn is time_steps:
            _, batch_size, num_steps, length = args
            self.sent.append(length)
            sending_s = 2 * self.link.seconds((length or 1.0) * LENET.total_n_bytes / 2) if self.link else 0.0
            slow = [self.overhead_s + self.s_per_example * batch_size + sending_s] * num_steps
            return [slow, *([[0.5 * s for s in slow]] * (self.world_size - 1))]
        return [[(n, 2 * self.link.seconds(n / 2)) for n in args[0]]] * self.world_size


def test_what_is_put_in_comes_out():
    link = Link(1e-4, 1e9)
    ranks = Ranks(2, link=link)
    found = calibrate(ranks, LeNet, LENET, (8, 16, 64))
    assert found.k == 2 and not found.overlap
    assert math.isclose(found.device.overhead_s, 0.004, rel_tol=1e-6)
    assert math.isclose(LENET.flops / found.device.flops_per_s, 0.001, rel_tol=1e-6)
    assert math.isclose(found.link.latency_s, 1e-4, rel_tol=1e-6)
    assert math.isclose(found.link.bandwidth_bytes_per_s, 1e9, rel_tol=1e-6)
    assert set(ranks.sent) == {0.5, 2.0}  # a calibration never sends what is predicted from it
    expected = 0.004 + 0.001 * 50 + 2 * link.seconds(LENET.total_n_bytes / 2)
    assert math.isclose(predicted_step(found, LENET, 100).seconds, expected, rel_tol=1e-6)


def test_one_rank_needs_no_link():
    found = calibrate(Ranks(1), LeNet, LENET, (8, 16, 64))
    assert found.link is None and predicted_step(found, LENET, 10).communication_s == 0


def test_what_overlaps_is_hidden():
    own = Calibration(2, Device(1e9), Link(0.0, 1e9), overlap=True)
    other = Calibration(2, Device(1e9), Link(0.0, 1e9), overlap=False)
    assert predicted_step(own, LENET, 64).seconds <= predicted_step(other, LENET, 64).seconds


def test_a_step_is_as_long_as_that_of_the_slowest_rank():
    assert math.isclose(measured_seconds(Ranks(2), LeNet, 40, 5), 0.004 + 0.001 * 20)


def weights_after(length):
    """Train on random examples, others on each rank; return a weight."""
    made = []

    def make_net():
        made.append(LeNet())
        return made[-1]

    torch.manual_seed(torch.distributed.get_rank())
    times = time_steps(make_net, 4, 3, length)
    return times, made[0].params[0].sum().item()


@pytest.mark.slow
@pytest.mark.parametrize("length", (None, 0.5, 2.0))
def test_real_steps_that_sum_gradients_or_other_tensors(length):
    with Workers(2, timeout_s=30) as workers:
        (times, one), (_, other) = workers.run(weights_after, length)
    assert len(times) == 3 and all(seconds > 0 for seconds in times)
    assert (one == other) is (length is None)


class Disturbed(Ranks):
    """Ranks whose steps take less time for more examples, the first `times` times that it is measured."""

    def __init__(self, times):
        super().__init__(1)
        self.calls, self.times = 0, times

    def run(self, fn, *args):
        self.calls += 1
        return [[1.0 / self.calls] * args[2]] if self.calls <= 6 * self.times else super().run(fn, *args)


def test_a_disturbed_calibration_is_repeated_but_not_for_ever():
    found = calibrate(Disturbed(2), LeNet, LENET, (8, 16, 64))
    assert math.isclose(found.device.overhead_s, 0.004, rel_tol=1e-6)
    with pytest.raises(ValueError, match="expected more seconds for more examples"):
        calibrate(Disturbed(3), LeNet, LENET, (8, 16, 64))
