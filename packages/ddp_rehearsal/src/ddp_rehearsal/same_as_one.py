"""A run on k GPUs against the same run on one: the first step and tensor in which they differ by more than rounding."""

import math
from collections import Counter
from dataclasses import dataclass, replace

import torch

from ddp_rehearsal.finding import Finding
from ddp_rehearsal.fingerprint import MOST_ROWS, Sample
from ddp_rehearsal.observations import Forward, Loaded, Observed, RankObservations, Reduced, Sampled, Saved, Update
from ddp_rehearsal.rules.minibatches import minibatch_rows
from ddp_rehearsal.tolerances import SIXTEEN_BIT_STEP_RTOL, reduction_order_rtol
from notebook_ranks.shared.format import listed

__all__ = ["compare_with_one"]

# Weights that rounding has moved apart let a few examples take a different path, at the edge of a ReLU or a maximum.
# So from the second step on the bound of a gradient is so many times as large.
LATER_FACTOR = 30
COARSE_LATER_RTOL = 0.1  # the same for 16-bit types
# A gradient that is smaller than the largest one, times so many times the precision, may be 0 but for rounding; Adam
# makes a large change of it. The second number is for 16-bit types.
MOST_STRAIN = 0.1
COARSE_STEPS = 3
NOISE, COARSE_NOISE = 64, 1
RATIO_RTOL = 0.01


@dataclass(frozen=True)
class Sameness:
    """What a comparison has found. Without a finding, the runs were the same in the first `steps` updates.

    `largest` is the largest difference in these, relative to the largest value or the norm of its tensor. `ended` says
    why only examples and learning rates were compared in later updates, "" if there were none.
    """

    finding: Finding | None
    steps: int
    largest: float = 0.0
    ended: str = ""


def compare_with_one(one: RankObservations, observed: Observed) -> Sameness:
    """Compare the updates of rank 0 of several with those of a run on one GPU, which began with the same seed.

    In each step: were the examples the same ones; then samples of the weights before the update, the learning rates,
    samples of the gradients, and of what the update has added to the weights. What a dropout or a BatchNorm explains
    is a note, and so is what keeps the runs from being compared.

    Args:
        one: the observations of the run on one GPU, with samples.
        observed: those of all ranks of the run on several GPUs, with samples of rank 0.
    """
    first, k = observed[0], len(observed)
    samples = list(zip(one.of(Sampled), first.of(Sampled), strict=False))
    note = Finding("same", "", "", is_sure=False)
    if (loaded := _loaded_from_the_other(one, observed)) is not None:
        file = loaded.path.rpartition("/")[2]
        words = f"the run on 1 GPU begins with {file}, which that on {k} has saved: they cannot be compared."
        repair = "Remove the file first, and let the script write none in its first steps."
        return Sameness(replace(note, words=words, repair=repair, step=loaded.step, place=loaded.place), 0)
    if not samples:
        words = "the two runs cannot be compared: one has made no update, or the parameters are sharded."
        return Sameness(replace(note, words=words, repair="Compare a script that keeps whole parameters."), 0)
    largest, strain, ended, compared, noisy = 0.0, 0.0, "", 0, set[tuple[str, int]]()
    for i, (a, b) in enumerate(samples):
        step = _Step(a, b, i == 0, noisy)
        note = replace(note, step=b.step, place=b.place)
        finding = (
            _examples(note, one, observed)
            or _different_tensors(note, step, k)
            or _weights(note, step, samples[i - 1] if i else None, k)
            or _rates(note, step, one, first, k)
        )
        ended = ended or step.too_coarse(i, strain)
        if not ended:
            finding = finding or _gradients(note, step, one, observed) or _changes(note, step, one, observed)
        if finding is not None:
            return Sameness(finding, compared, largest)
        if not ended:
            compared = i + 1
            largest = max(largest, *(step.largest(what)[0] for what in ("weights", "grads", "changes")))
            strain = max(step.strain(what) for what in ("grads", "changes")) if i else 0.0
    updates = one.num_updates, first.num_updates
    if updates[0] != updates[1]:
        words = f"the run on 1 GPU made {updates[0]} updates, and that on {k} made {updates[1]}."
        return Sameness(replace(note, words=words, repair=ORDER), compared, largest)
    return Sameness(None, compared, largest, ended)


ORDER = (
    "Draw the order of the examples with one seed, on 1 GPU as well: DistributedSampler does. It repeats examples "
    "where they do not divide by the ranks: choose a suitable number. Switch random changes of the examples off."
)


class _Step:
    """One update of both runs: `a` on one GPU, `b` on several.

    `noisy` are the (name, number) of sampled values whose gradient, in this step or before, may be 0 but for rounding.
    """

    def __init__(self, a: Sampled, b: Sampled, is_first: bool, noisy: set[tuple[str, int]]) -> None:
        self.a, self.b, self.is_first, self.noisy = a, b, is_first, noisy
        self.halves = a.halves or b.halves
        grads = [(name, a.grads.get(name), grad) for name, grad in b.grads.items()]
        most = max((s[1] for _, *of in grads for s in of if s and math.isfinite(s[1])), default=0.0)
        self.noise = {name: self._precision(name) * most for name in b.weights}
        for name, one, other in grads:
            for i, (x, y) in enumerate(zip((one or ())[2:], (other or ())[2:], strict=False)):
                if x != y and max(abs(x), abs(y)) <= self.noise[name]:
                    noisy.add((name, i))

    def _dtype(self, name: str) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, self.b.dtypes[name])
        return dtype

    def _precision(self, name: str) -> float:
        eps = torch.finfo(torch.bfloat16 if self.halves else self._dtype(name)).eps
        return eps * (NOISE if eps < 1e-6 else COARSE_NOISE)

    def rtol(self, name: str, what: str) -> float:
        """Return what rounding explains of a tensor, relative to its largest value."""
        dtype = self._dtype(name)
        rtol = reduction_order_rtol(dtype, 1 if self.is_first else 2)
        if what == "weights":
            return rtol
        if self.halves:
            rtol = max(rtol, SIXTEEN_BIT_STEP_RTOL)
        if not self.is_first:
            rtol = min(LATER_FACTOR * rtol, COARSE_LATER_RTOL)
        weight, change = self.a.weights[name], self.a.changes[name]
        if what == "changes" and weight and change and change[1]:  # the difference of two numbers that are close
            rtol += 4 * torch.finfo(dtype).eps * max(weight[1] / change[1], weight[0] / change[0])
            grad = self.a.grads.get(name)
            rtol += self.noise[name] / grad[1] if grad and grad[1] else 0.0
        return rtol

    def strain(self, what: str) -> float:
        """Return the largest difference over what rounding explains."""
        return max(self.difference(name, what) / self.rtol(name, what) for name in self.b.weights)

    def too_coarse(self, i: int, strain: float) -> str:
        """Return why tensors of the update `i`, from 0, may differ by rounding as much as by a bug; "" if they do not.

        `strain` is that of the update before: a bug makes a jump, and rounding grows.
        """
        if strain > MOST_STRAIN:
            return "rounding had grown too large"
        apart, name = self.largest("weights")
        if apart > self.rtol(name, "weights"):
            return f"rounding had moved the weights apart by {apart:.0e}"
        if i >= COARSE_STEPS and (self.halves or any(self._dtype(name).itemsize < 4 for name in self.b.weights)):
            return "numbers of 16 bits had been rounded too often"
        return ""

    def difference(self, name: str, what: str) -> float:
        """Return the largest difference of two samples, relative to the norm or the largest value."""
        one, other = self.samples(name, what)
        if not one or not other:
            return 0.0 if not one and not other else math.inf
        noise = self.noise[name] if what == "grads" else 0.0
        pairs = [
            (x, y) for i, (x, y) in enumerate(zip(one[2:], other[2:], strict=False)) if (name, i) not in self.noisy
        ]
        found = max((_relative(one[1], x, y, noise) for x, y in pairs), default=0.0)
        if what == "grads" or len(pairs) == len(one) - 2:
            found = max(found, _relative(one[0], one[0], other[0], noise * max(1.0, one[0] / one[1] if one[1] else 1)))
        return found

    def samples(self, name: str, what: str) -> tuple[Sample | None, Sample | None]:
        """Return the samples of both runs of a tensor's "weights", "grads" or "changes"."""
        return getattr(self.a, what).get(name), getattr(self.b, what).get(name)

    def largest(self, what: str) -> tuple[float, str]:
        """Return the largest difference of all tensors, and the name of that tensor."""
        return max((self.difference(name, what), name) for name in self.b.weights)

    def first(self, what: str) -> str | None:
        """Return the name of the first tensor that differs by more than rounding, None if none does."""
        return next((name for name in self.b.weights if self.difference(name, what) > self.rtol(name, what)), None)

    def ratios(self, what: str) -> list[float]:
        """Return the norm on several GPUs over that on one, of each tensor whose gradient is not 0."""
        grads = {name: self.samples(name, "grads")[0] for name in self.b.weights}
        pairs = [self.samples(name, what) for name, grad in grads.items() if grad and grad[1] > self.noise[name]]
        return [other[0] / one[0] for one, other in pairs if one and other and one[0]]


def _relative(size: float, x: float, y: float, noise: float) -> float:
    if x == y or (math.isnan(x) and math.isnan(y)):
        return 0.0
    apart = abs(x - y) - noise
    if math.isnan(apart):
        return math.inf
    return max(0.0, apart) / size if size else math.inf if apart > 0 else 0.0


def _examples(found: Finding, one: RankObservations, observed: Observed) -> Finding | None:
    """Return a note if the ranks' examples of a step are not those of one GPU; None if they are, or are not known."""
    step = found.step
    if any(len(f.rows) >= MOST_ROWS for of in (one, *observed) for f in of.of(Forward) if f.step == step):
        return None
    expected = Counter(minibatch_rows(one).get(step, ()))
    of_ranks = [Counter(minibatch_rows(of).get(step, ())) for of in observed]
    together = sum(of_ranks, Counter[str]())
    if together == expected or all(of == expected for of in of_ranks) or not (together and expected):
        return None
    words = f"the two runs did not see the same examples in step {step}, so they cannot be compared"
    n, k = expected.total(), len(observed)
    if n != together.total():
        words += f": {n} on 1 GPU, and {together.total()} on {k} GPUs together."
        repair = 'Let each rank take its part of the minibatch: --same "--batch-size {256/k}" divides by the GPUs.'
        return replace(found, words=words, repair=repair)
    return replace(found, words=f"{words}: only {(expected & together).total()} of {n} are the same.", repair=ORDER)


def _different_tensors(found: Finding, step: _Step, k: int) -> Finding | None:
    if set(step.a.weights) == set(step.b.weights):
        return None
    words = f"step {found.step} updates different tensors on 1 GPU and on {k}: the runs cannot be compared."
    return replace(found, words=words, repair="Let the script make the same network for any number of GPUs.")


def _weights(found: Finding, step: _Step, before: tuple[Sampled, Sampled] | None, k: int) -> Finding | None:
    """Return a finding if the weights before an update differ, and the updates before it do not explain it."""
    if before is None:
        name = step.first("weights")
        words = f"the weights ({name}) before the first update are not the same on 1 GPU and on {k}."
        repair = "Make the network with the same torch.manual_seed on any number of GPUs, before the rank matters."
    else:
        one, other = (_changed_between(then, now) for then, now in zip(before, (step.a, step.b), strict=True))
        name = next((name for name in step.b.weights if (name in one) != (name in other)), None)
        words = (
            f"the weights ({name}) are changed between two updates, before step {found.step}, on {k} GPUs or on 1 only."
        )
        repair = "Change weights by the optimizer alone, or in the same way on any number of GPUs."
    return None if name is None else replace(found, words=words, repair=repair, is_sure=True)


def _changed_between(then: Sampled, now: Sampled) -> set[str]:
    """Return the names of the weights that are not what the update before has left."""
    found = set()
    for name in set(then.weights) & set(now.weights):
        before, change, after = then.weights[name][2:], then.changes[name][2:], now.weights[name][2:]
        rtol = 4 * torch.finfo(getattr(torch, now.dtypes[name])).eps
        if any(abs(x + d - y) > rtol * max(abs(x), abs(y)) for x, d, y in zip(before, change, after, strict=True)):
            found.add(name)
    return found


def _rates(found: Finding, step: _Step, one: RankObservations, first: RankObservations, k: int) -> Finding | None:
    mine, theirs = (next((u.lrs for u in of.of(Update) if u.step == found.step), ()) for of in (one, first))
    if len(mine) == len(theirs) and all(map(math.isclose, mine, theirs)):
        return None
    said = [", ".join(f"{lr:g}" for lr in lrs) for lrs in (mine, theirs)]
    words = (
        f"the learning rate of step {found.step} is {said[0]} on 1 GPU and {said[1]} on {k}, so that the weights "
        f"({next(iter(step.b.weights))}) differ after the update."
    )
    repair = (
        "Choose the learning rate by the global minibatch, once, and let schedulers take as many steps as on 1 GPU."
    )
    return replace(found, words=words, repair=repair, is_sure=True)


def _gradients(found: Finding, step: _Step, one: RankObservations, observed: Observed) -> Finding | None:
    name, k = step.first("grads"), len(observed)
    if name is None or any(u.closure for u in one.of(Update) if u.step == found.step):
        return None
    ratios = step.ratios("grads")
    gathers = any(r.name.startswith("all_gather") and r.step == found.step for r in observed[0].of(Reduced))
    if gathers and ratios and all(abs(ratio * k - 1) < RATIO_RTOL for ratio in ratios):
        words = (
            f"the gradients ({name}) of step {found.step} are {k} times smaller than on 1 GPU: all_gather passes no "
            f"gradient to the other ranks, and each rank has 1/{k} of it after the average."
        )
        repair = (
            "Gather by torch.distributed.nn.functional.all_gather, which passes gradients; or multiply the loss by the "
            "number of ranks."
        )
        return replace(found, words=words, repair=repair, is_sure=True)
    for factor, words, repair in (
        (k, f"{k} times as large as on 1 GPU: they are added up, and not averaged.", f"Divide the sum by {k}."),
        (1 / k, f"{k} times smaller than on 1 GPU: they are divided by {k} once too often.", "Divide once only."),
    ):
        if ratios and all(abs(ratio / factor - 1) < RATIO_RTOL for ratio in ratios):
            words = f"the gradients ({name}) of step {found.step} are {words}"
            return replace(found, words=words, repair=repair, is_sure=True)
    rows = [len(minibatch_rows(of).get(found.step, ())) for of in observed]
    had = f" The ranks had {listed(rows)} rows." if len(set(rows)) > 1 else ""
    words = (
        f"the gradient of {name} in step {found.step} is not that of 1 GPU, although the examples are the same: it "
        f"differs by {step.difference(name, 'grads'):.1g} of its largest value.{had}"
    )
    repair = (
        "If a rank's loss is a mean over what it has (rows, tokens), the mean over the ranks weighs all ranks alike, "
        "however much each has: divide each rank's sum by the mean count of the ranks. Or look "
        "for clipping before the reduction, and for random numbers in the network."
    )
    return _may_be_right(replace(found, words=words, repair=repair, is_sure=True), one, observed)


def _changes(found: Finding, step: _Step, one: RankObservations, observed: Observed) -> Finding | None:
    name = step.first("changes")
    if name is None:
        return None
    words = (
        f"the weights ({name}) after the update of step {found.step} are not those of 1 GPU, although gradients and "
        f"learning rates are: the change differs by {step.difference(name, 'changes'):.1g} of its largest value."
    )
    repair = "Look for what else depends on the number of GPUs: momentum, weight decay, the state of the optimizer."
    return _may_be_right(replace(found, words=words, repair=repair, is_sure=True), one, observed)


def _may_be_right(found: Finding, one: RankObservations, observed: Observed) -> Finding:
    """Return a finding as a note if the network has layers that make a right script differ."""
    forwards = [f for of in (one, *observed) for f in of.of(Forward)]
    if any(f.drops_out for f in forwards):
        words = f"{found.words} The network has a dropout, and each rank draws numbers of its own."
        return replace(found, words=words, repair="Set the dropout to 0 for this comparison.", is_sure=False)
    if any(f.batch_norms for f in forwards):
        words = f"{found.words} BatchNorm uses the mean and variance of each rank's own examples."
        repair = "Compare with torch.nn.SyncBatchNorm.convert_sync_batchnorm(model), or accept the difference."
        return replace(found, words=words, repair=repair, is_sure=False)
    return found


def _loaded_from_the_other(one: RankObservations, observed: Observed) -> Loaded | None:
    saved = {file.path for of in observed for file in of.of(Saved)}
    return next((file for file in one.of(Loaded) if file.step == 1 and file.path in saved), None)
