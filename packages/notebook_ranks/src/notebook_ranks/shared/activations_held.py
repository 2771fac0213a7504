"""The bytes of activations that autograd holds while passes run, which a chapter and a rehearsal measure alike."""

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

__all__ = ["ActivationsHeld", "activations_held"]


class ActivationsHeld:
    """What autograd keeps for backward passes: `now_n_bytes` at this moment, `most_n_bytes` at the fullest one."""

    def __init__(self) -> None:
        self.now_n_bytes = self.most_n_bytes = 0
        self._counts: dict[int, int] = {}  # address of the memory: how many operations keep it

    def _keep(self, address: int, n_bytes: int) -> None:
        self._counts[address] = self._counts.get(address, 0) + 1
        if self._counts[address] == 1:
            self.now_n_bytes += n_bytes
            self.most_n_bytes = max(self.most_n_bytes, self.now_n_bytes)

    def _release(self, address: int, n_bytes: int) -> None:
        self._counts[address] -= 1
        if self._counts[address] == 0:
            self.now_n_bytes -= n_bytes


def _storage(tensor: Any) -> torch.UntypedStorage:
    """Return the memory of a tensor; of a DTensor that of the part on this rank."""
    return (tensor.detach().to_local() if hasattr(tensor, "to_local") else tensor).untyped_storage()


class _Kept:
    """A tensor that an operation keeps; it goes when the operation does."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


@contextmanager
def activations_held(params: Iterable[torch.Tensor]) -> Iterator[ActivationsHeld]:
    """Count the bytes of activations while a block runs forward and backward passes, in any order.

    A tensor that several operations keep is counted once, and so are views of it: a view counts as the whole tensor,
    which it keeps in memory. Parameters are no activations. Of a
    DTensor the part on this rank is counted. A tensor without memory of its own, such as a sparse one, counts nothing.

    Example:
        >>> layer = torch.nn.Linear(3, 4)
        >>> with activations_held(layer.parameters()) as held:
        ...     outputs = [layer(torch.ones(5, 3)).sum() for _ in range(2)]
        ...     for output in outputs:
        ...         output.backward()
        >>> held.most_n_bytes, held.now_n_bytes
        (120, 0)
    """
    own = {_storage(param).data_ptr() for param in params}
    held = ActivationsHeld()

    def pack(tensor: torch.Tensor) -> _Kept:
        kept = _Kept(tensor.detach())
        whole = tensor if tensor._base is None else tensor._base
        with suppress(RuntimeError):  # some tensors have no storage
            storage = _storage(tensor)
            # FSDP gathers parameters into others, which are none of `params`, and frees them after the forward pass
            if storage.data_ptr() not in own and not isinstance(whole, torch.nn.Parameter):
                held._keep(storage.data_ptr(), storage.nbytes())
                weakref.finalize(kept, held._release, storage.data_ptr(), storage.nbytes())
        return kept

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept.tensor):
        yield held
