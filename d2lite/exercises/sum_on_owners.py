"""Exercise 4.3: an all-reduce in which different gradients are added on different devices."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from d2lite.collectives import assign_owners
from d2lite.exercises.exercise import Exercise, Unfit
from d2lite.exercises.placed import Machine, Placed

__all__ = ["OWNERS"]


def _observe_owners(answer: Callable[..., Any], k: int, sizes: Sequence[int]) -> str:
    """Call an answer with gradients on k devices; raise Unfit for what is wrong, and return "right" for nothing."""
    generator = torch.Generator().manual_seed(k)
    grads = [[torch.rand(n, generator=generator, dtype=torch.float64) for n in sizes] for _ in range(k)]
    expected = [torch.stack(list(column)).sum(0) for column in zip(*grads, strict=True)]
    before = [[grad.clone() for grad in row] for row in grads]
    places = [[grad.data_ptr() for grad in row] for row in grads]
    adders = dict.fromkeys(range(len(sizes)), 0) if k == 1 else {}  # one device has nothing to add

    def watch(name: str, i: int, result: torch.Tensor, inputs: list[Placed]) -> None:
        if name.strip("_") in ("copy", "setitem", "to", "detach", "clone"):
            return
        for j, total in enumerate(expected):
            if j not in adders and result.numel() == total.numel() and torch.allclose(result.reshape(-1), total):
                adders[j] = i

    machine = Machine(watch)
    owners = answer([[machine.put(grad, i) for grad in row] for i, row in enumerate(grads)])
    for j in range(len(sizes)):
        for i, grad in enumerate(row[j] for row in grads):
            if grad.data_ptr() != places[i][j] or not torch.allclose(grad, expected[j]):
                kept = "still its own numbers" if torch.equal(grad, before[i][j]) else "other numbers"
                raise Unfit(
                    f"gradient {j} on device {i} does not hold the sum of all devices, but {kept}.",
                    "All devices need each sum, written into the tensors that they have.",
                )
    _check_owners(owners, adders, k, sizes)
    return "right"


def _check_owners(owners: Any, adders: dict[int, int], k: int, sizes: Sequence[int]) -> None:
    """Raise Unfit unless `owners` are the devices that have added, and these have about the same work."""
    names = owners.tolist() if isinstance(owners, torch.Tensor) else owners
    if not isinstance(names, (list, tuple)) or len(names) != len(sizes) or any(type(i) is not int for i in names):
        raise Unfit(
            "it does not return a list with one device number per gradient.",
            "Return for each gradient, in their order, the number of the device that adds it.",
        )
    for j, owner in enumerate(names):
        if j not in adders:
            raise Unfit(f"no device adds gradient {j} as a tensor.", "Add on the device that owns the gradient.")
        if adders[j] != owner:
            raise Unfit(
                f"gradient {j} is added on device {adders[j]}, and the list names device {owner}.",
                "Which device holds the result of an addition? all_reduce adds on the device of the first tensor.",
            )
    loads, ours = [0] * k, [0] * k
    for n, owner, other in zip(sizes, names, assign_owners(sizes, k), strict=True):
        loads[owner] += n
        ours[other] += n
    if max(loads) > max(ours):
        raise Unfit(
            f"the devices add {loads} numbers: device {loads.index(max(loads))} has more work than needed.",
            "Take the largest gradient first. Which device should have the next one?",
        )


def _sum_on(device_tensors: list[list[torch.Tensor]], owners: Sequence[int]) -> list[int]:
    for j, owner in enumerate(owners):
        total = device_tensors[owner][j]
        for i in range(len(device_tensors)):
            if i != owner:
                total += device_tensors[i][j].to(total.device)
        for i in range(len(device_tensors)):
            if i != owner:
                device_tensors[i][j].copy_(total)
    return list(owners)


def _sum_on_owners(device_tensors: list[list[torch.Tensor]]) -> list[int]:
    return _sum_on(device_tensors, assign_owners([t.numel() for t in device_tensors[0]], len(device_tensors)))


OWNERS = Exercise(
    name="4.3",
    title="An all-reduce in which different gradients are added on different devices",
    solution=lambda device_tensors: _sum_on_owners(device_tensors),
    cases=lambda: {
        f"{k} device{'s' if k > 1 else ''}, gradients of {', '.join(map(str, sizes))} numbers": (k, sizes)
        for k, sizes in (
            (2, (3, 1, 1, 1)),
            (3, (5, 5, 4, 4, 3, 3, 3)),
            (4, (180, 20, 250, 50, 1024, 128, 10)),
            (4, (6, 2)),
            (1, (3, 4)),
        )
    },
    observe=_observe_owners,
    mistakes=(),
    think="The largest first, always to the device that has least so far.",
)
