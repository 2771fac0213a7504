"""How a training scales from 1 to 10,000 GPUs, predicted: efficiency, time of an epoch, where it goes, its cost."""

from dataclasses import dataclass, replace

from d2lite.costs.alpha_beta import Cluster, Device, Link
from d2lite.costs.hardware import find_device, find_link
from d2lite.costs.step import crossover_batch_size, gpu_hours, predict_step
from d2lite.costs.stragglers import normal_wait
from d2lite.costs.workloads import named_workload

__all__ = ["GPUS", "Outcome", "Setup", "crossover", "outcome", "outcomes", "summary"]

GPUS = (1, *(n for i in range(1, 14) for n in (2**i, 3 * 2 ** (i - 1)) if n < 10_000), 10_000)


@dataclass(frozen=True)
class Setup:
    """What is trained and on what. `batch_size` is that of each GPU, or of all together if `is_global`.

    `overhead_s` is what each step costs beside arithmetic, `spread` the standard deviation of the GPUs' computing times
    over their mean, for the wait for the slowest.
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


@dataclass(frozen=True)
class Outcome:
    """Predicted for k GPUs: the Step, the time of an epoch, the efficiency (1: k times the examples of one GPU)."""

    k: int
    step: object
    epoch_s: float
    efficiency: float

    @property
    def gpu_hours(self):
        """GPU-hours of an epoch."""
        return gpu_hours(self.epoch_s, self.k)


def outcome(setup, k):
    """Return the predicted Outcome for k GPUs, or None for a minibatch with fewer examples than GPUs."""
    if setup.is_global and setup.batch_size < k:
        return None
    one, many = _epoch(setup, 1), _epoch(setup, k)
    return Outcome(k, many[0], many[1], one[1] / (k * many[1]))


def _epoch(setup, k):
    """The predicted Step of k GPUs and the seconds of all steps of an epoch."""
    workload = named_workload(setup.network)
    device = replace(setup.device, overhead_s=setup.overhead_s)
    each = setup.batch_size / k if setup.is_global else setup.batch_size
    compute_s = device.overhead_s + workload.flops * each / device.flops_per_s
    wait_s = normal_wait(k, setup.spread * compute_s)
    step = predict_step(workload, each, k, device, _cluster(setup), setup.algorithm, setup.overlap, wait_s=wait_s)
    return step, step.seconds * workload.num_examples / (each * k)


def outcomes(setup, ks=GPUS):
    """Return {k: Outcome or None}."""
    return {k: outcome(setup, k) for k in ks}


def crossover(setup):
    """Return the smallest minibatch (of both together) at which two GPUs are not slower than one, or None.

    Both are taken to be equally fast: the spread is left out.
    """
    device = replace(setup.device, overhead_s=setup.overhead_s)
    settings = dict(algorithm=setup.algorithm, overlap=setup.overlap)
    return crossover_batch_size(named_workload(setup.network), device, _cluster(setup), **settings)


def _cluster(setup):
    return Cluster(setup.inside, setup.across, setup.per_host)


def summary(setup, k, price=0.0):
    """Return in words (HTML) what is predicted for k GPUs at `price` for an hour of one GPU."""
    one, many = outcome(setup, 1), outcome(setup, k)
    if many is None:
        return f"A minibatch of {setup.batch_size} examples cannot be shared out to {k:,} GPUs."
    step, speedup = many.step, one.epoch_s / many.epoch_s
    gpus = "1 GPU" if k == 1 else f"{k:,} GPUs"
    words = [f"<b>Predicted for {gpus}: {_seconds(many.epoch_s)} an epoch</b>"]
    if k > 1:
        words[0] += (
            f", {_number(speedup)} times as fast as one ({_seconds(one.epoch_s)}), efficiency {many.efficiency:.0%}."
        )
        hidden = step.communication_s - step.exposed_s
        words.append(
            f"Of a step of {_seconds(step.seconds)}, {_seconds(step.overhead_s)} are overhead, "
            f"{_seconds(step.compute_s)} computing, {_seconds(step.exposed_s)} sending, {_seconds(step.wait_s)} "
            f"waiting for the slowest; {_seconds(hidden)} of sending are hidden behind the backward pass."
        )
    else:
        words[0] += "."
    words.append(f"An epoch takes {_number(many.gpu_hours)} GPU-hours (one GPU: {_number(one.gpu_hours)})")
    words[-1] += (
        f" and costs {_money(many.gpu_hours * price)} (one GPU: {_money(one.gpu_hours * price)})." if price else "."
    )
    even = crossover(setup)
    if even is None:
        words.append("Two GPUs are slower than one at any size of the minibatch.")
    elif even <= 2:
        words.append("Two GPUs are never slower than one.")
    else:
        words.append(f"Two GPUs stop being slower than one at a minibatch of {even:,} (both together).")
    return " ".join(words)


def _number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _money(value):
    return f"{value:,.2f}" if value >= 0.1 else f"{value:.2g}"


def _seconds(seconds):
    for unit, size, least in (("h", 3600, 7200), ("min", 60, 120), ("s", 1, 1), ("ms", 1e-3, 1e-3)):
        if seconds >= least:
            return f"{_number(seconds / size)} {unit}"
    return f"{1e6 * seconds:.3g} µs" if seconds > 1e-9 else "0 ms"  # differences of equal times are not quite zero
