"""The prediction of how training scales from 1 to 10,000 GPUs: efficiency, time of an epoch, its parts, its cost."""

from dataclasses import dataclass, replace

from d2lite._checks import instance_of, non_negative_number, one_of, positive_int, true_or_false
from d2lite._format import format_money, format_number, format_seconds
from d2lite.costs.alpha_beta import COST_FORMULAS, Cluster, Device, Link
from d2lite.costs.hardware import find_device, find_link
from d2lite.costs.step import StepPrediction, crossover_batch_size, gpu_hours, predict_step
from d2lite.costs.stragglers import normal_wait
from d2lite.costs.workloads import NETWORKS, named_workload

__all__ = ["GPUS", "ScalingPrediction", "Setup", "crossover", "describe_scaling", "predict_scaling"]

GPUS = (1, *(n for i in range(1, 14) for n in (2**i, 3 * 2 ** (i - 1)) if n < 10_000), 10_000)


@dataclass(frozen=True)
class Setup:
    """What is trained and on what. `batch_size` is the minibatch of each GPU, or of all GPUs together if `is_global`.

    `overhead_s` is the time of each step that is not arithmetic. `spread` is the standard deviation of the GPUs'
    computing times over their mean; the wait for the slowest follows from it. Raises ValueError for a number that is
    out of its range or an unknown name, and TypeError for a value of another type.
    """

    network: str = "ResNet-50"
    batch_size: int = 32
    is_global: bool = False
    device: Device = find_device("V100, float32")
    inside: Link = find_link("NVLink 2 (V100, 6 links)")
    across: Link = find_link("Ethernet 25 Gb/s, RDMA")
    per_host: int = 8
    algorithm: str = "ring"
    overlap: bool = True
    overhead_s: float = 0.0
    spread: float = 0.0

    def __post_init__(self) -> None:
        one_of("network", self.network, NETWORKS)
        positive_int("batch_size", self.batch_size)
        instance_of("device", self.device, Device)
        instance_of("inside", self.inside, Link)
        instance_of("across", self.across, Link)
        positive_int("per_host", self.per_host)
        one_of("algorithm", self.algorithm, COST_FORMULAS)
        for name in ("is_global", "overlap"):
            true_or_false(name, getattr(self, name))
        for name in ("overhead_s", "spread"):
            non_negative_number(name, getattr(self, name))


@dataclass(frozen=True)
class ScalingPrediction:
    """What is predicted for k GPUs: a step, the time of an epoch, and the efficiency.

    The efficiency is 1 if k GPUs process k times as many examples per second as one.
    """

    k: int
    step: StepPrediction
    epoch_s: float
    efficiency: float

    @property
    def gpu_hours(self) -> float:
        """GPU-hours per epoch."""
        return gpu_hours(self.epoch_s, self.k)


def predict_scaling(setup: Setup, k: int) -> ScalingPrediction | None:
    """Return the ScalingPrediction for k GPUs, or None for a minibatch with fewer examples than GPUs.

    Raises ValueError for less than one GPU, TypeError for anything but a Setup and a whole number.
    """
    instance_of("setup", setup, Setup)
    k = positive_int("k", k)
    if setup.is_global and setup.batch_size < k:
        return None
    one, many = _epoch(setup, 1), _epoch(setup, k)
    return ScalingPrediction(k, many[0], many[1], one[1] / (k * many[1]))


def _epoch(setup: Setup, k: int) -> tuple[StepPrediction, float]:
    """Return the StepPrediction of k GPUs and the seconds of all steps of an epoch."""
    workload = named_workload(setup.network)
    device = replace(setup.device, overhead_s=setup.overhead_s)
    each = setup.batch_size / k if setup.is_global else setup.batch_size
    compute_s = device.overhead_s + workload.flops * each / device.flops_per_s
    wait_s = normal_wait(k, setup.spread * compute_s)
    step = predict_step(
        workload, each, k, device, _cluster(setup), algorithm=setup.algorithm, overlap=setup.overlap, wait_s=wait_s
    )
    return step, step.seconds * workload.num_examples / (each * k)


def crossover(setup: Setup) -> int | None:
    """Return the smallest minibatch (of both GPUs together) at which two GPUs are not slower than one, or None.

    Both GPUs are assumed to be equally fast: the spread is left out. Raises TypeError for anything but a Setup.
    """
    instance_of("setup", setup, Setup)
    device = replace(setup.device, overhead_s=setup.overhead_s)
    net, cluster = named_workload(setup.network), _cluster(setup)
    return crossover_batch_size(net, device, cluster, algorithm=setup.algorithm, overlap=setup.overlap)


def _cluster(setup: Setup) -> Cluster:
    return Cluster(setup.inside, setup.across, setup.per_host)


def describe_scaling(setup: Setup, k: int, price: float = 0.0) -> str:
    """Return in words (HTML) what is predicted for k GPUs at `price` for an hour of one GPU.

    Raises as `predict_scaling` does, and ValueError or TypeError for a price that is not a finite number from 0 on.
    """
    price = non_negative_number("price", price)
    one, many = predict_scaling(setup, 1), predict_scaling(setup, k)
    if one is None or many is None:
        return f"A minibatch of {setup.batch_size} examples cannot be divided among {k:,} GPUs."
    words = f"<b>Predicted for {k:,} GPU{'s' if k > 1 else ''}: {format_seconds(many.epoch_s)} per epoch</b>"
    if k > 1:
        step, speedup = many.step, format_number(one.epoch_s / many.epoch_s)
        parts = (step.overhead_s, step.compute_s, step.exposed_s, step.wait_s, step.communication_s - step.exposed_s)
        overhead, compute, exposed, wait, hidden = map(format_seconds, parts)
        words += f", {speedup} times as fast as one ({format_seconds(one.epoch_s)}), efficiency {many.efficiency:.0%}"
        words += f". Of a step of {format_seconds(step.seconds)}, {overhead} are overhead, {compute} computing, "
        words += f"{exposed} sending, {wait} waiting for the slowest; {hidden} of sending are hidden behind the "
        words += "backward pass"
    words += f". An epoch takes {format_number(many.gpu_hours)} GPU-hours (one GPU: {format_number(one.gpu_hours)})"
    if price:
        costs = [format_money(each.gpu_hours * price) for each in (many, one)]
        words += f" and costs {costs[0]} (one GPU: {costs[1]})"
    even = crossover(setup)
    if even is None:
        return f"{words}. Two GPUs are slower than one at any size of the minibatch."
    if even <= 2:
        return f"{words}. Two GPUs are never slower than one."
    return f"{words}. Two GPUs stop being slower than one at a minibatch of {even:,} (both together)."
