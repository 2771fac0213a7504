"""Predicted times: a step with and without overlap, bucket by bucket, and how it scales; pure arithmetic."""

from dataclasses import dataclass
from functools import cache

from d2lite._checks import positive_int
from d2lite.costs.alpha_beta import all_reduce_seconds
from d2lite.trace import Event

__all__ = [
    "DDP_BUCKETS",
    "Step",
    "bucket_sums",
    "buckets",
    "crossover_batch_size",
    "gpu_hours",
    "predict_step",
    "strong_scaling",
    "weak_scaling",
]

MIB = 1024 * 1024
# sizes at which DistributedDataParallel closes its first bucket, and the others (PyTorch documentation: bucket_cap_mb)
DDP_BUCKETS = (1 * MIB, 25 * MIB)


@dataclass(frozen=True)
class Step:
    """One predicted step of one device among k, in seconds.

    overhead_s + compute_s + exposed_s + wait_s = seconds. `communication_s` is how long the link is busy; what of the
    step lies beyond the end of computing is `exposed_s`, the rest is hidden. `wait_s` is for the slowest of the k.
    `events` are spans for `timelines.timeline`.
    """

    seconds: float
    overhead_s: float
    compute_s: float
    communication_s: float
    exposed_s: float
    wait_s: float
    events: tuple


def buckets(n_bytes, caps=DDP_BUCKETS):
    """Return lists of indices into `n_bytes`, from the last tensor to the first, as gradients become ready.

    A bucket is closed when it holds at least its cap: `caps` are those of the first, the second, ... and of all others.
    The rule is that of DistributedDataParallel (Li et al. 2020, arXiv:2006.15704, section 3.2.3).
    """
    found, held = [[]], 0
    for i in reversed(range(len(n_bytes))):
        found[-1].append(i)
        held += n_bytes[i]
        if held >= caps[min(len(found), len(caps)) - 1]:
            found.append([])
            held = 0
    return [bucket for bucket in found if bucket]


@cache
def bucket_sums(workload, caps=DDP_BUCKETS):
    """Return for each bucket the share of the backward pass (0..1) that is done when it is ready, and its bytes."""
    found, done = [], 0
    for bucket in buckets(workload.n_bytes, caps):
        done += sum(workload.macs[i] for i in bucket)
        found.append((done / sum(workload.macs), sum(workload.n_bytes[i] for i in bucket)))
    return found


def predict_step(
    workload, batch_size, k, device, cluster, algorithm="ring", overlap=True, caps=DDP_BUCKETS, wait_s=0.0
):
    """Return the predicted Step of k devices, each with a minibatch of `batch_size` (a fraction of an example is fine).

    The forward pass takes a third of the arithmetic, the backward pass two thirds. A bucket is sent when its gradients
    are ready and the link is free; without overlap, when the backward pass is done.
    """
    positive_int("k", k)
    arithmetic_s = workload.flops * batch_size / device.flops_per_s
    forward_end = device.overhead_s + arithmetic_s / 3
    compute_end = device.overhead_s + arithmetic_s
    events = [Event(0, "forward", "forward", 0.0, forward_end)]
    ready = sent = forward_end
    for i, (fraction, n_bytes) in enumerate(bucket_sums(workload, caps)):
        start, ready = ready, forward_end + (compute_end - forward_end) * fraction
        events.append(Event(0, "backward", f"backward {i}", start, ready))
        if k > 1:
            start = max(sent, ready if overlap else compute_end)
            sent = start + all_reduce_seconds(algorithm, k, n_bytes, cluster)
            events.append(Event(0, "all_reduce", f"bucket {i}", start, sent, n_bytes))
    end = max(compute_end, sent)
    if wait_s:
        events.append(Event(0, "wait", "wait for the slowest", end, end + wait_s))
    busy = sum(event.end_s - event.start_s for event in events if event.kind == "all_reduce")
    return Step(end + wait_s, device.overhead_s, arithmetic_s, busy, end - compute_end, wait_s, tuple(events))


def weak_scaling(workload, batch_size, ks, device, cluster, **settings):
    """Return {k: (Step, efficiency)} for `batch_size` examples on each device: the time of one over the time of k."""
    one = predict_step(workload, batch_size, 1, device, cluster).seconds
    steps = {k: predict_step(workload, batch_size, k, device, cluster, **settings) for k in ks}
    return {k: (step, one / step.seconds) for k, step in steps.items()}


def strong_scaling(workload, batch_size, ks, device, cluster, **settings):
    """Return {k: (Step, efficiency)} for `batch_size` examples shared out: the time of one over k times that of k."""
    one = predict_step(workload, batch_size, 1, device, cluster).seconds
    steps = {k: predict_step(workload, batch_size / k, k, device, cluster, **settings) for k in ks}
    return {k: (step, one / (k * step.seconds)) for k, step in steps.items()}


def crossover_batch_size(workload, device, cluster, k=2, most=2**24, **settings):
    """Return the smallest minibatch (of all devices together) that k devices do at least as fast as one, or None.

    None means that even `most` examples are slower on k devices.
    """

    def slower(batch_size):
        one = predict_step(workload, batch_size, 1, device, cluster).seconds
        return predict_step(workload, batch_size / k, k, device, cluster, **settings).seconds > one

    if slower(most):
        return None
    low, high = k - 1, most  # fewer than k examples cannot be shared out
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if slower(middle) else (low, middle)
    return high


def gpu_hours(seconds, k):
    """Return the device-hours of `seconds` on k devices: what a price per GPU and hour is multiplied by."""
    return seconds * k / 3600
