"""Several tensors per device in one all-reduce, each added on a device of its own."""

from collections.abc import Sequence

import torch

from d2lite.collectives.on_devices import all_reduce_naive
from d2lite.collectives.tensor_checks import check_each, check_memory
from d2lite.replica_threads import parallel_apply
from notebook_ranks.shared.checks import all_of, one_of, positive_int, whole_number

__all__ = ["all_reduce_many", "assign_owners"]


def all_reduce_many(device_tensors: Sequence[Sequence[torch.Tensor]], op: str = "sum") -> None:
    """All-reduce several tensors per device, in place; each is added on the device that `assign_owners` gives it.

    All devices add at the same time. device_tensors[i] is the list of tensors on device i, its gradients for example;
    `op` is "sum" or "mean". Errors are as in `all_reduce`: no two tensors of all may share memory.
    """
    one_of("op", op, ("sum", "mean"))
    if not isinstance(device_tensors, (list, tuple)) or not all(isinstance(t, (list, tuple)) for t in device_tensors):
        raise TypeError(
            f"device_tensors: expected a list of lists of tensors, one list per device, got {device_tensors!r:.80}."
        )
    k = len(device_tensors)
    if len({len(tensors) for tensors in device_tensors}) != 1:
        lengths = [len(tensors) for tensors in device_tensors]
        raise ValueError(f"device_tensors: expected lists of one length, one per device, got lengths {lengths}.")
    for j, tensors in enumerate(zip(*device_tensors, strict=True)):
        check_each(tensors, op, f"device_tensors[{{}}][{j}]")
    names = [f"device_tensors[{i}][{j}]" for i in range(k) for j in range(len(device_tensors[0]))]
    check_memory([tensor for tensors in device_tensors for tensor in tensors], names)
    owners = assign_owners([tensor.numel() for tensor in device_tensors[0]], k)

    def add_mine(i: int) -> None:
        for j, owner in enumerate(owners):
            if owner == i:
                # the owner first: all_reduce_naive adds on the first
                all_reduce_naive([device_tensors[(i + n) % k][j] for n in range(k)], op)

    if owners:
        parallel_apply(add_mine, [tensors[0].device for tensors in device_tensors], range(k))


def assign_owners(sizes: Sequence[int], k: int) -> list[int]:
    """Return for each of `sizes` one of k owners: the largest first, always to the owner with the least so far.

    Source: Graham 1969, Bounds on multiprocessing timing anomalies, SIAM J. Appl. Math. 17(2).
    """
    sizes, k = all_of("sizes", sizes, whole_number), positive_int("k", k)
    owners, loads = [0] * len(sizes), [0] * k
    for j in sorted(range(len(sizes)), key=lambda j: -sizes[j]):
        owners[j] = loads.index(min(loads))
        loads[owners[j]] += sizes[j]
    return owners
