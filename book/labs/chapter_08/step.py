"""The predicted time of a step, with and without overlap, bucket by bucket."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from d2lite.costs.alpha_beta import COST_FORMULAS, Cluster, Device, Link, all_reduce_seconds, as_cluster
from d2lite.trace import Event
from notebook_ranks.shared.checks import (
    instance_of,
    non_negative_number,
    one_of,
    positive_int,
    positive_number,
    true_or_false,
)

from .ddp_buckets import DDP_BUCKETS, bucket_sums
from .workloads import Workload

__all__ = ["StepPrediction", "gpu_hours", "predict_step"]


@dataclass(frozen=True, kw_only=True)
class StepPrediction:
    """One predicted step of one device among k, in seconds.

    overhead_s + compute_s + exposed_s + wait_s = seconds. The link is busy for `communication_s`, of which `exposed_s`
    come after the end of computing and the rest is hidden behind it. `wait_s` is the wait for the slowest of the k
    devices. `events` are its spans, for a figure of the timeline.
    """

    seconds: float
    overhead_s: float
    compute_s: float
    communication_s: float
    exposed_s: float
    wait_s: float
    events: tuple[Event, ...]


def predict_step(
    workload: Workload,
    batch_size: float,
    k: int,
    device: Device,
    cluster: Cluster | Link,
    *,
    algorithm: str = "ring",
    overlap: bool = True,
    caps: Sequence[int] = DDP_BUCKETS,
    wait_s: float = 0.0,
) -> StepPrediction:
    """Return the StepPrediction of data-parallel training on k devices.

    The forward pass takes a third of the arithmetic, the backward pass two thirds. A bucket of gradients is sent when
    it is ready and the link is free. Nothing is measured.

    Args:
        workload: The network, as `workload` or `named_workload` describes it.
        batch_size: Examples per device and step. It need not be whole: 100 examples on 8 devices are 12.5.
        k: The number of devices.
        device: How fast each device computes.
        cluster: The links between the devices: a Cluster of hosts, or a Link if all devices are in one host.
        algorithm: The all-reduce algorithm, one of `COST_FORMULAS`.
        overlap: Whether buckets are sent during the backward pass. If not, all are sent after it.
        caps: Sizes in bytes at which the first bucket, the second, ... and all others are closed.
        wait_s: Seconds that the slowest device adds to the step.

    Returns:
        The StepPrediction, in seconds, with the spans of its parts.

    Raises:
        ValueError: `k` is below 1, `algorithm` is not one of `COST_FORMULAS`, a number is NaN or infinite, `batch_size`
            or one of `caps` is not above 0, `wait_s` is below 0, or the step takes more seconds than a float can hold.
        TypeError: An argument is of another type, for example a text in place of a number.

    Example:
        >>> net = Workload("two layers", n_bytes=(1_000_000, 3_000_000), macs=(1, 1))
        >>> step = predict_step(net, 1, 2, Device(flops_per_s=12.0), Link(0.0, 1e6), caps=(1,))
        >>> [round(s, 3) for s in (step.compute_s, step.communication_s, step.exposed_s, step.seconds)]
        [1.0, 4.0, 3.667, 4.667]
    """
    instance_of("workload", workload, Workload)
    batch_size, k = positive_number("batch_size", batch_size), positive_int("k", k)
    instance_of("device", device, Device)
    cluster = as_cluster(cluster)
    one_of("algorithm", algorithm, COST_FORMULAS)
    true_or_false("overlap", overlap)
    wait_s = non_negative_number("wait_s", wait_s)
    arithmetic_s = workload.flops * batch_size / device.flops_per_s
    forward_end = device.overhead_s + arithmetic_s / 3
    compute_end = device.overhead_s + arithmetic_s
    events = [Event(rank=0, kind="forward", name="forward", start_s=0.0, end_s=forward_end)]
    ready = sent = forward_end
    for i, (fraction, n_bytes) in enumerate(bucket_sums(workload, caps)):
        start, ready = ready, forward_end + (compute_end - forward_end) * fraction
        events.append(Event(rank=0, kind="backward", name=f"backward {i}", start_s=start, end_s=ready))
        if k > 1:
            start = max(sent, ready if overlap else compute_end)
            sent = start + all_reduce_seconds(algorithm, k, n_bytes, cluster)
            events.append(
                Event(rank=0, kind="all_reduce", name=f"bucket {i}", start_s=start, end_s=sent, n_bytes=n_bytes)
            )
    end = max(compute_end, sent)
    if not math.isfinite(end + wait_s):
        raise ValueError(f"batch_size, device, cluster, wait_s: expected a step that ends, got {end + wait_s} s.")
    if wait_s:
        events.append(Event(rank=0, kind="wait", name="wait for the slowest", start_s=end, end_s=end + wait_s))
    busy = sum(event.end_s - event.start_s for event in events if event.kind == "all_reduce")
    return StepPrediction(
        seconds=end + wait_s,
        overhead_s=device.overhead_s,
        compute_s=arithmetic_s,
        communication_s=busy,
        exposed_s=end - compute_end,
        wait_s=wait_s,
        events=tuple(events),
    )


def gpu_hours(seconds: float, k: int) -> float:
    """Return the GPU-hours of `seconds` on k GPUs. Times the price of a GPU for an hour, they give the cost."""
    return seconds * k / 3600
