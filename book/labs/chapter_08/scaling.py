"""The prediction of how training scales from 1 to 10,000 GPUs: efficiency, time of an epoch, its parts, its cost."""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

from d2lite.costs.alpha_beta import COST_FORMULAS, Cluster, Device, Link
from d2lite.costs.hardware import find_device, find_link
from notebook_ranks.shared.checks import (
    all_of,
    instance_of,
    non_negative_number,
    one_of,
    positive_int,
    true_or_false,
    whole_number,
)
from notebook_ranks.shared.format import format_money, format_number, format_seconds

from .step import StepPrediction, gpu_hours, predict_step
from .stragglers import normal_wait
from .workloads import NETWORKS, Workload, named_workload

__all__ = [
    "GPUS",
    "ScalingPrediction",
    "Setup",
    "crossover",
    "crossover_batch_size",
    "describe_scaling",
    "predict_scaling",
    "strong_scaling",
    "weak_scaling",
]

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
    _: KW_ONLY
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


def weak_scaling(
    workload: Workload, batch_size: float, ks: Iterable[int], device: Device, cluster: Cluster | Link, **settings: Any
) -> dict[int, tuple[StepPrediction, float]]:
    """Return {k: (StepPrediction, efficiency)}, with `batch_size` examples on each of k devices.

    The efficiency is the time of one device over the time of k. `settings` and errors are those of `predict_step`.
    """
    ks = all_of("ks", ks, positive_int)
    one = predict_step(workload, batch_size, 1, device, cluster).seconds
    steps = {k: predict_step(workload, batch_size, k, device, cluster, **settings) for k in ks}
    return {k: (step, one / step.seconds) for k, step in steps.items()}


def strong_scaling(
    workload: Workload, batch_size: float, ks: Iterable[int], device: Device, cluster: Cluster | Link, **settings: Any
) -> dict[int, tuple[StepPrediction, float]]:
    """Return {k: (StepPrediction, efficiency)}, with `batch_size` examples divided among k devices.

    The efficiency is the time of one device over k times the time of k. `settings` and errors are those of
    `predict_step`.
    """
    ks = all_of("ks", ks, positive_int)
    one = predict_step(workload, batch_size, 1, device, cluster).seconds
    steps = {k: predict_step(workload, batch_size / k, k, device, cluster, **settings) for k in ks}
    return {k: (step, one / (k * step.seconds)) for k, step in steps.items()}


def crossover_batch_size(
    workload: Workload, device: Device, cluster: Cluster | Link, k: int = 2, most: int = 2**24, **settings: Any
) -> int | None:
    """Return the smallest minibatch (of all devices together) for which k devices are at least as fast as one, or None.

    None means that even `most` examples are slower on k devices. `settings` and errors are those of `predict_step`.
    Raises ValueError or TypeError also if `most` is not a whole number from `k` on.
    """
    k = positive_int("k", k)
    most = whole_number("most", most, k, hint="Each device needs an example.")

    def slower(batch_size: int) -> bool:
        one = predict_step(workload, batch_size, 1, device, cluster).seconds
        return predict_step(workload, batch_size / k, k, device, cluster, **settings).seconds > one

    sizes = range(k, most + 1)  # fewer than k examples are too few to divide
    i = bisect_left(sizes, True, key=lambda batch_size: not slower(batch_size))
    return sizes[i] if i < len(sizes) else None
