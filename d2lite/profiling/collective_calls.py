"""The collectives that a rank calls while a function runs: which, with which ranks, and how many bytes it sends."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
    return tensors.nbytes if isinstance(tensors, torch.Tensor) else sum(map(_n_bytes, tensors))


# what a rank sends per byte of the tensor that it gives, for k ranks; an all-to-all has no fixed part
_PER_BYTE: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda k: 2 * (k - 1) / k,
    "broadcast": lambda k: (k - 1) / k,
    "all_gather": lambda k: k - 1,
    "reduce_scatter": lambda k: (k - 1) / k,
    "send": lambda k: 1,
}
# name of an operator of PyTorch: our name, and which of its arguments is the tensor that a rank gives
_OPERATORS = {
    "allreduce_": ("all_reduce", 0),
    "broadcast_": ("broadcast", 0),
    "allgather_": ("all_gather", 1),
    "_allgather_base_": ("all_gather", 1),
    "reduce_scatter_": ("reduce_scatter", 1),
    "_reduce_scatter_base_": ("reduce_scatter", 1),
    "alltoall_base_": ("all_to_all", 1),
    "send": ("send", 0),
    # those below are what DTensor calls
    "all_reduce": ("all_reduce", 0),
    "all_reduce_": ("all_reduce", 0),
    "all_gather_into_tensor": ("all_gather", 0),
    "reduce_scatter_tensor": ("reduce_scatter", 0),
    "all_to_all_single": ("all_to_all", 0),
}
_SPLITS = {"alltoall_base_": 4, "all_to_all_single": 2}  # the argument with the rows for each rank; empty: equal parts
_SEND_NOTHING = ("barrier", "monitored_barrier_", "recv_", "recv_any_source_", "wait_tensor", "_wrap_tensor_autograd")


def _recorded_call(operator: str, args: Sequence[Any]) -> CollectiveCall:
    group = _group_of(args)
    ranks, (name, at) = tuple(dist.get_process_group_ranks(group)), _OPERATORS[operator]
    given, k = args[at], len(ranks)
    if name != "all_to_all":
        return CollectiveCall(name, ranks, _PER_BYTE[name](k) * _n_bytes(given))
    splits = args[_SPLITS[operator]] or [len(given) // k] * k
    kept = splits[dist.get_rank(group)] / max(len(given), 1)
    return CollectiveCall(name, ranks, _n_bytes(given) * (1 - kept))


def _group_of(args: Sequence[Any]) -> Any:
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
        if is_collective and name in _OPERATORS:
            self.calls.append(_recorded_call(name, args))
        elif is_collective and name not in _SEND_NOTHING:
            warnings.warn(f"recorded_collectives does not count the operator {name}.", stacklevel=2)
        return func(*args, **(kwargs or {}))


@contextmanager
def recorded_collectives() -> Iterator[list[CollectiveCall]]:
    """Record the collectives of this rank while the block runs, also those that PyTorch's own parallel layers call.

    Gives a list that grows with each call. A receive sends nothing, and is not in it. Collectives that this book does
    not use in training, such as `dist.gather`, draw a UserWarning and are not counted.

    Example, on a rank::

        with recorded_collectives() as calls:
            dist.all_reduce(torch.ones(1000))
        print(calls)  # on two ranks: [CollectiveCall(name='all_reduce', ranks=(0, 1), sent_n_bytes=4000.0)]
    """
    calls: list[CollectiveCall] = []
    with _Recorder(calls):
        yield calls
