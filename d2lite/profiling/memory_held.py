"""The bytes that a training step keeps in memory: parameters, gradients, the optimizer's state, and activations."""

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

__all__ = ["ActivationsHeld", "activations_held", "bytes_held"]


def bytes_held(
    params: Iterable[torch.Tensor],
    forward: Callable[..., Any],
    *args: Any,
    make_optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.Adam,
) -> dict[str, int]:
    """Run one step and return {"parameters", "gradients", "optimizer", "activations": how many bytes each takes}.

    The activations are what autograd keeps for the backward pass: inputs, outputs of layers, labels. A tensor that
    several operations keep is counted once. What lives only for a moment, such as the gradients of activations, is not
    counted. The optimizer takes its step with lr=0, so the parameters stay as they are; their gradients are discarded.
    Of a sharded network, `d2lite.training.bytes_on_rank` counts what one rank holds.

    Args:
        params: The parameters that are trained, on one device or on several.
        forward: forward(*args) computes the tensor, or a list of tensors, from which the backward pass starts.
        args: The arguments of `forward`.
        make_optimizer: Called as make_optimizer(params, lr=0.0).

    Example:
        >>> layer = torch.nn.Linear(3, 4)
        >>> bytes_held(layer.parameters(), layer, torch.zeros(5, 3), make_optimizer=torch.optim.SGD)
        {'parameters': 64, 'gradients': 64, 'optimizer': 0, 'activations': 60}
    """
    params = list(params)
    optimizer = make_optimizer(params, lr=0.0)
    kept: dict[int, tuple[torch.UntypedStorage, int]] = {}  # by address: as storages stay alive, none comes twice

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        n_bytes = min(tensor.nbytes, storage.nbytes())  # a shard is a view of the minibatch, which is larger
        kept[storage.data_ptr()] = storage, max(n_bytes, kept.get(storage.data_ptr(), (storage, 0))[1])
        return tensor.detach()

    optimizer.zero_grad()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        outputs = forward(*args)
    sums = [output.sum().cpu() for output in ([outputs] if torch.is_tensor(outputs) else outputs)]
    torch.stack(sums).sum().backward()
    optimizer.step()
    own = {param.untyped_storage().data_ptr() for param in params}
    state = [value for values in optimizer.state.values() for value in values.values() if torch.is_tensor(value)]
    held = {
        "parameters": sum(param.nbytes for param in params),
        "gradients": sum(param.grad.nbytes for param in params if param.grad is not None),
        "optimizer": sum(tensor.nbytes for tensor in state),
        "activations": sum(n_bytes for address, (_, n_bytes) in kept.items() if address not in own),
    }
    optimizer.zero_grad()
    return held


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

    A tensor that several operations keep is counted once, and so are views of it. Parameters are no activations. Of a
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
