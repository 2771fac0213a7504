"""The first tensor in which two runs differ: at which step, after which operation, on which replica, by how much."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import torch

from ddp_rehearsal.tolerances import reduction_order_rtol, replica_drift_rtol

from .write_recorder import GRADIENT, WEIGHT, StepRecord, Write

__all__ = ["Comparison", "Divergence", "compare_replicas", "find_divergence"]

_SIXTEEN_BITS = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Divergence:
    """A tensor in which two runs differ: `write` is from the second run, `one` is the same tensor of the first run.

    `difference` is the largest difference of an element, relative to the largest absolute value in `one`. It is NaN if
    values were not kept, and infinite if the tensor was not written in the second run.
    """

    step: int
    write: Write
    one: torch.Tensor | None
    difference: float
    is_rounding: bool

    def __str__(self) -> str:
        write, after = self.write, {"backward": "the backward pass", "message": "a message", "update": "the update"}
        what = "weight" if write.operation == "update" else "gradient"
        if math.isinf(self.difference) and write.tensor is None:
            return f"step {self.step}: the {what} of {write.name} on replica {write.rank} is not written in this step."
        size = "" if math.isnan(self.difference) else f" by {self.difference:.1e} of the largest value"
        kind = "rounding" if self.is_rounding else "more than rounding"
        line = f" Written by line {write.line}: {write.code}" if write.line else ""
        return (
            f"step {self.step}, after {after[write.operation]}: the {what} of {write.name} on replica {write.rank} "
            f"differs{size} ({kind}).{line}"
        )


@dataclass(kw_only=True)
class Comparison:
    """Two runs, step by step.

    `gradients[s][r]` and `weights[s][r]` are the largest differences of replica r in step s + 1; NaN without values.
    `digests[s]` is {(rank, index, operation): whether this tensor is equal in both runs, bit for bit}. `first` is the
    first difference that is more than rounding, `first_bits` the first difference of any size; None if there is none.
    `kept` has the records of both runs for the step of `first`, and for the steps before and after it.
    """

    gradients: list[list[float]] = field(default_factory=list)
    weights: list[list[float]] = field(default_factory=list)
    digests: list[dict[tuple[int, int, str], bool]] = field(default_factory=list)
    first: Divergence | None = None
    first_bits: Divergence | None = None
    kept: dict[int, tuple[StepRecord, StepRecord]] = field(default_factory=dict)
    most_bytes: int = 0  # of tensors that were kept at one time

    def __str__(self) -> str:
        steps = f"{len(self.weights)} steps"
        if self.first_bits is None:
            return f"{steps}: no difference, bit for bit."
        if self.first is None:
            return f"{steps}: no difference but rounding. The first: {self.first_bits}"
        return f"The first difference: {self.first}"


def find_divergence(one: Iterable[StepRecord], other: Iterable[StepRecord]) -> Comparison:
    """Compare two runs while they go on: a step of the first run and a step of the second take turns.

    Two tensors of each parameter are compared: the gradient with which it is updated, and the weight after the update.
    Each replica of `other` is compared with the same replica of `one`, or with replica 0 if `one` has fewer replicas.
    So a run on one device can be compared with a run on k devices. The gradients of both runs must be of the same
    kind, sums or means.

    Args:
        one: a run that is right, from `record_steps`.
        other: the run in question, over the same minibatches.

    Raises:
        ValueError: if a run has no step, or the two runs have different parameters.
    """
    return _compare(zip(one, other, strict=False))


def compare_replicas(run: Iterable[StepRecord]) -> Comparison:
    """Compare every replica of a run with its replica 0: the gradients after the all-reduce, and the weights."""
    return _compare(((record, record) for record in run), with_first=True)


def _compare(pairs: Iterable[tuple[StepRecord, StepRecord]], with_first: bool = False) -> Comparison:
    found, before = Comparison(), None
    for one, other in pairs:
        differences = list(_differences(one, other, with_first))
        found.digests.append({(d.write.rank, d.write.index, d.write.operation): not d.difference for d in differences})
        for operations, curves in ((GRADIENT, found.gradients), (WEIGHT, found.weights)):
            curves.append(_by_rank([d for d in differences if d.write.operation in operations]))
        apart = [d for d in differences if d.difference]  # NaN is true
        found.first_bits = found.first_bits or next(iter(apart), None)
        if found.first is None:
            found.first = next((d for d in apart if not d.is_rounding), None)
            if found.first is not None:
                found.kept = {pair[0].step: pair for pair in (before, (one, other)) if pair is not None}
        elif one.step == found.first.step + 1:
            found.kept[one.step] = (one, other)
        held = [*found.kept.values(), (one, other), *([before] if before else [])]
        found.most_bytes = max(found.most_bytes, sum({id(r): r.n_bytes for pair in held for r in pair}.values()))
        before = (one, other)
    if not found.weights:
        raise ValueError(
            "one, other: expected at least one step of both runs, got none. Use a fresh record_steps(...)."
        )
    return found


def _differences(one: StepRecord, other: StepRecord, with_first: bool) -> Iterator[Divergence]:
    """Yield a Divergence for every tensor of `other`, in the order of the last writes, also for equal tensors."""
    for operations in (GRADIENT, WEIGHT):
        expected, got = one.last(operations), other.last(operations)
        names = {i: write for (_, i), write in [*expected.items(), *got.items()]}
        found: list[Divergence] = []
        nearest: dict[int, float] = {}  # of each parameter, the difference of the replica that differs least
        for (rank, i), write in sorted(got.items(), key=lambda item: _order_of(other, item[1])):
            same = None if with_first else expected.get((rank, i))
            same = same or expected.get((0, i))
            if same is None:
                raise ValueError(
                    f"one, other: expected two runs of one network, got {write.name} in only one of them. Record both "
                    "with steps that write the same gradients and weights."
                )
            difference = 0.0 if same.digest == write.digest else _largest_difference(same.tensor, write.tensor)
            nearest[i] = min(difference, nearest.get(i, math.inf))
            found.append(Divergence(other.step, write, same.tensor, difference, False))
        for d in found:
            yield replace(d, is_rounding=_is_rounding(d, with_first, nearest[d.write.index]))
        if got or operations == WEIGHT:  # a step may have no .grad at all
            for rank, i in sorted({(rank, i) for rank in range(other.num_replicas) for i in names} - got.keys()):
                nothing = replace(names[i], operation=operations[-1], rank=rank, line=0, code="", tensor=None)
                yield Divergence(other.step, nothing, names[i].tensor, math.inf, False)


def _is_rounding(d: Divergence, with_first: bool, nearest: float) -> bool:
    """Return whether rounding explains a difference.

    All replicas of a run add the same sum, so rounding hardly separates them. A replica that is clearly farther from
    the first run than its neighbours has a bug. So has a tensor whose elements are all numbers of 16 bits, if those of
    the first run have more.
    """
    if d.one is None or d.write.tensor is None:
        return not d.difference
    between_replicas = replica_drift_rtol(d.one.dtype)
    if with_first:
        return d.difference <= between_replicas
    if d.difference > reduction_order_rtol(d.one.dtype, d.step) or d.difference - nearest > between_replicas:
        return False
    return not d.difference or not _has_16_bits(d.write.tensor) or _has_16_bits(d.one)


def _has_16_bits(tensor: torch.Tensor) -> bool:
    """Return whether some elements are not 0, and all are numbers of a 16-bit type."""
    return bool(tensor.any()) and any(torch.equal(tensor.to(t).to(tensor.dtype), tensor) for t in _SIXTEEN_BITS)


def _order_of(record: StepRecord, write: Write) -> int:
    return next(i for i, own in enumerate(record.writes) if own is write)


def _largest_difference(one: torch.Tensor | None, other: torch.Tensor | None) -> float:
    if one is None or other is None:
        return math.nan
    if one.shape != other.shape:
        return math.inf
    other = other.to(one.device)
    if torch.equal(one, other):  # 0.0 and -0.0 included
        return 0.0
    apart = float((one.double() - other.double()).abs().max())
    most = float(one.double().abs().max())
    return math.inf if math.isnan(apart) else apart / most if most else math.inf


def _by_rank(differences: list[Divergence]) -> list[float]:
    ranks = sorted({d.write.rank for d in differences})
    return [max(d.difference for d in differences if d.write.rank == rank) for rank in ranks]
