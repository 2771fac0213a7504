"""Bugs with a number of their own: a wrong divisor, clipping on each replica, weight decay, momentum.

The number is read from one case. `check_step` then compares what the bug computes with this number in all cases, so
that a number that fits only one case names nothing.
"""

import math
from collections.abc import Iterator, Sequence

import torch

from ddp_rehearsal.tolerances import SAME_BUG_RTOL

from .bug_formulas import CLIP_EPSILON, OWNERS, RIGHT, Bug, Weight, shards, simulate
from .step_case import StepCase, flat, start_params

__all__ = ["fitted_bugs"]

Result = tuple[StepCase, list[torch.Tensor]]  # a case, and the parameters of each replica after it

# Where gradients may be divided, for clipping: the weight of a shard before it, and after it.
_CLIPPED: tuple[tuple[Weight, Weight], ...] = (
    (lambda n_i, n, k: k / n, lambda n_i, n, k: 1 / k),  # the loss of DDP, weighted as in chapter 5
    (lambda n_i, n, k: 1 / n_i, lambda n_i, n, k: 1 / k),  # means over shards, which are averaged
    (lambda n_i, n, k: 1 / n_i, lambda n_i, n, k: n_i / n),  # means over shards, weighted afterwards
    (lambda n_i, n, k: 1 / n, lambda n_i, n, k: 1.0),  # parts of the mean over all
    (lambda n_i, n, k: 1.0, lambda n_i, n, k: 1 / n),  # sums over examples
)


def fitted_bugs(results: Sequence[Result]) -> Iterator[Bug]:
    """Yield the bugs that explain one of the results, each with the number that is read from it.

    Args:
        results: the cases, and what the step has made of them: one flat vector of parameters per replica.
    """
    results = [(case, got) for case, got in results if got[0].isfinite().all()]
    one_step = [(case, got) for case, got in results if case.steps == 1 and case.k > 1]
    two_steps = [(case, got) for case, got in results if case.steps == 2 and case.k == 1]
    for case, got in one_step[:1]:
        yield from _wrong_divisor(case, got[0])
        yield from _weight_decay(case, got[0])
    for case, got in two_steps[:1]:
        yield from _momentum(case, got[0])
    for case, got in one_step:
        yield from _clipping(case, got[0])
        yield from _clipping_of_parts(case, got[0])


def _subtracted(case: StepCase, got: torch.Tensor) -> torch.Tensor:
    """Return the change of the parameters, divided by the learning rate: what one step has subtracted."""
    return (flat(start_params()) - got) / case.lr


def _shard_gradients(case: StepCase) -> list[tuple[int, torch.Tensor]]:
    """Return (number of examples, gradient of their summed loss) of each shard in the first step."""
    return [(last - first, case.gradient(flat(start_params()), 0, first, last)) for first, last in _even(case)]


def _even(case: StepCase) -> list[tuple[int, int]]:
    return shards("even", case.n, case.k)


def _wrong_divisor(case: StepCase, got: torch.Tensor) -> Iterator[Bug]:
    total = torch.stack([grad for _, grad in _shard_gradients(case)]).sum(0)
    moved = _subtracted(case, got)
    factor = float((moved @ total) / (total @ total))
    if not (factor > 0 and float((moved - factor * total).norm()) <= SAME_BUG_RTOL * float(moved.norm())):
        return
    name, divisor, k = "never divided by the examples", 1 / factor, case.k
    said = "is not divided" if math.isclose(divisor, 1, rel_tol=1e-6) else f"is divided by {divisor:.6g} in every step"
    words = f"the sum of the gradients over all examples {said}. Divide it by their number."
    yield Bug(name, words, lambda n_i, n, _: factor)
    said = "averaged over replicas" if math.isclose(divisor, k, rel_tol=1e-6) else f"divided by {divisor / k:.6g} * k"
    words = f"the sums over the examples of each shard are {said}. Divide by the number of examples as well."
    yield Bug(name, words, lambda n_i, n, of_k: factor * k / of_k)


def _weight_decay(case: StepCase, got: torch.Tensor) -> Iterator[Bug]:
    begin = flat(start_params())
    missing = simulate(RIGHT, case)[0] - got
    share = float((missing @ begin) / (begin @ begin))
    if not share > 0:
        return
    n_0, k_0, rate = case.n, case.k, share / case.lr
    once = (
        f"the step also makes the weights smaller, by {rate:.3g} * lr of their size: weight decay. The single device "
    )
    once += "of the comparison has none. If it is meant, compare with a step that has it."
    fixed = f"the step also makes the weights smaller, by {share:.3g} of their size whatever lr is: weight decay. The "
    fixed += "single device of the comparison has none. If it is meant, compare with a step that has it."
    for_each = "weight decay is added once for each replica, so that it is k times as large as on one device. Add it "
    for_each += "to the gradient after the all-reduce."
    for decays_biases in (True, False):
        yield Bug("weight decay", once, decay=lambda lr, n, k: rate * lr, decays_biases=decays_biases)
        yield Bug("weight decay", fixed, decay=lambda lr, n, k: share, decays_biases=decays_biases)
        name = "weight decay k times"
        yield Bug(name, for_each, decay=lambda lr, n, k: rate * lr * k / k_0, decays_biases=decays_biases)
        yield Bug(name, for_each, decay=lambda lr, n, k: rate * lr * k / k_0 * n_0 / n, decays_biases=decays_biases)


def _momentum(case: StepCase, got: torch.Tensor) -> Iterator[Bug]:
    first = case.gradient(flat(start_params()), 0, 0, case.n) / case.n
    again = float(((simulate(RIGHT, case)[0] - got) @ first) / (first @ first)) / case.lr
    if 0 < again < 1:
        words = f"each step also adds {again:.3g} of the update before: momentum. The single device of the comparison "
        words += "has none. If it is meant, compare with a step that has it."
        yield Bug("momentum", words, momentum=again)


def _clipping(case: StepCase, got: torch.Tensor) -> Iterator[Bug]:
    sizes, grads = zip(*_shard_gradients(case), strict=True)
    moved, columns = _subtracted(case, got), torch.stack(grads, 1)
    weights = torch.linalg.lstsq(columns, moved[:, None]).solution[:, 0]
    if not float((moved - columns @ weights).norm()) <= SAME_BUG_RTOL * float(moved.norm()):
        return
    words = (
        "each replica clips its own gradient to the norm {:.4g} before the all-reduce, so that shards are clipped by "
    )
    words += "different factors. Clip after the all-reduce: it is the gradient of the whole minibatch that counts."
    for before, after in _CLIPPED:
        for n_i, grad, weight in zip(sizes, grads, weights.tolist(), strict=True):
            whole, rest = before(n_i, case.n, case.k), weight / after(n_i, case.n, case.k)
            if 0 < rest < whole * (1 - SAME_BUG_RTOL):
                norm = rest / whole * (whole * float(grad.norm()) + CLIP_EPSILON)
                yield Bug("clipping on each replica", words.format(norm), before, max_norm=norm, after=after)
                break


def _clipping_of_parts(case: StepCase, got: torch.Tensor) -> Iterator[Bug]:
    total = torch.stack([grad for _, grad in _shard_gradients(case)]).sum(0) / case.n
    moved = _subtracted(case, got)
    words = (
        "each device clips its part of the gradient to {:.4g}, by the norm of this part, so that parts are clipped by "
        "different factors. Add up the squares of all parts: the root of that is the norm of the whole gradient."
    )
    for owners in OWNERS:
        for owner in range(case.k):
            part = total[owners(case.k) == owner]
            if not part.any():
                continue
            factor = float(moved[owners(case.k) == owner] @ part / (part @ part))
            if 0 < factor < 1 - SAME_BUG_RTOL:
                norm = factor * (float(part.norm()) + CLIP_EPSILON)
                yield Bug("clipping by the norm of a part", words.format(norm), max_norm=norm, owners=owners)
                break
