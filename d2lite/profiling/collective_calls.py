"""The collectives that a rank calls while a function runs: which, with which ranks, and how many bytes it sends."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["CollectiveCall", "recorded_collectives"]


@dataclass(frozen=True)
class CollectiveCall:
    """One call: its name, the ranks of its group, and the bytes that this rank sends.

    `sent_n_bytes` is what a ring sends for an all-reduce, an all-gather, a reduce-scatter or a broadcast, averaged over
    its ranks (chapter 4), and what goes to other ranks for an all-to-all and a send. It is computed from the sizes of
    the tensors; the library underneath may send more.
    """

    name: str
    ranks: tuple[int, ...]
    sent_n_bytes: float


def _n_bytes(tensors: Any) -> int:
    """Return the bytes of a tensor, or of all tensors in nested lists."""
    if isinstance(tensors, torch.Tensor):
        return prod(tensors.shape) * tensors.element_size()
    return sum(map(_n_bytes, tensors))


def _exchanged(args: Sequence[Any], k: int, tensor: torch.Tensor, splits: Sequence[int]) -> float:
    """Return the bytes of an all-to-all that do not stay on this rank."""
    rows = splits[dist.get_rank(_group_of(args))] if splits else len(tensor) // k
    return _n_bytes(tensor) * (1 - rows / max(len(tensor), 1))


# name of an operator of PyTorch: our name, and the bytes that a rank sends, for its arguments and k ranks
_SENT: dict[str, tuple[str, Callable[[Sequence[Any], int], float]]] = {
    "allreduce_": ("all_reduce", lambda args, k: 2 * (k - 1) / k * _n_bytes(args[0])),
    "broadcast_": ("broadcast", lambda args, k: (k - 1) / k * _n_bytes(args[0])),
    "allgather_": ("all_gather", lambda args, k: (k - 1) * _n_bytes(args[1])),
    "_allgather_base_": ("all_gather", lambda args, k: (k - 1) * _n_bytes(args[1])),
    "reduce_scatter_": ("reduce_scatter", lambda args, k: (k - 1) / k * _n_bytes(args[1])),
    "_reduce_scatter_base_": ("reduce_scatter", lambda args, k: (k - 1) / k * _n_bytes(args[1])),
    "alltoall_base_": ("all_to_all", lambda args, k: _exchanged(args, k, args[1], args[4])),
    "send": ("send", lambda args, k: _n_bytes(args[0])),
    # those below are what DTensor calls
    "all_reduce": ("all_reduce", lambda args, k: 2 * (k - 1) / k * _n_bytes(args[0])),
    "all_reduce_": ("all_reduce", lambda args, k: 2 * (k - 1) / k * _n_bytes(args[0])),
    "all_gather_into_tensor": ("all_gather", lambda args, k: (k - 1) * _n_bytes(args[0])),
    "reduce_scatter_tensor": ("reduce_scatter", lambda args, k: (k - 1) / k * _n_bytes(args[0])),
    "all_to_all_single": ("all_to_all", lambda args, k: _exchanged(args, k, args[0], args[2])),
}


_SEND_NOTHING = ("barrier", "monitored_barrier_", "recv_", "recv_any_source_", "wait_tensor", "_wrap_tensor_autograd")


def _group_of(args: Sequence[Any]) -> dist.ProcessGroup:
    """Return the process group among the arguments of an operator: an object of C++, or the last string, its name."""
    for arg in args:
        if isinstance(arg, torch.ScriptObject):
            try:
                return dist.ProcessGroup.unbox(arg)
            except RuntimeError:  # another object: which operation an all-reduce uses
                continue
    name: Any = next(arg for arg in reversed(args) if isinstance(arg, str))
    return dist.distributed_c10d._resolve_process_group(name)


class _Recorder(TorchDispatchMode):
    """PyTorch calls it for each operator; DTensors are passed on, and come back as the tensors that they hold."""

    def __init__(self, calls: list[CollectiveCall]) -> None:
        super().__init__()
        self.calls = calls

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        from torch.distributed.tensor import DTensor

        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        name = func.__name__.partition(".")[0]
        is_collective = func.namespace in ("c10d", "_c10d_functional", "_c10d_functional_autograd")
        if is_collective and name not in _SENT and name not in _SEND_NOTHING:
            warnings.warn(f"recorded_collectives does not count the operator {name}.", stacklevel=2)
        elif is_collective and name in _SENT:
            ranks = tuple(dist.get_process_group_ranks(_group_of(args)))
            shown, sent = _SENT[name]
            self.calls.append(CollectiveCall(shown, ranks, sent(args, len(ranks))))
        return func(*args, **(kwargs or {}))


@contextmanager
def recorded_collectives() -> Iterator[list[CollectiveCall]]:
    """Record the collectives of this rank while the block runs, also those that PyTorch's own parallel layers call.

    Gives a list that grows with each call. A receive is not in it, since it sends nothing. Collectives that this book
    does not use in training, such as `dist.gather`, draw a UserWarning and are not counted.

    Example, on a rank::

        with recorded_collectives() as calls:
            dist.all_reduce(torch.ones(1000))
        print(calls)  # on two ranks: [CollectiveCall(name='all_reduce', ranks=(0, 1), sent_n_bytes=4000.0)]
    """
    calls: list[CollectiveCall] = []
    with _Recorder(calls):
        yield calls
