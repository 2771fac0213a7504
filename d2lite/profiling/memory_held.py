"""The bytes that a training step keeps in memory: parameters, gradients, the optimizer's state, and activations."""

from collections.abc import Callable, Iterable
from typing import Any

import torch

__all__ = ["bytes_held"]


def bytes_held(
    params: Iterable[torch.Tensor],
    forward: Callable[..., Any],
    *args: Any,
    make_optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.Adam,
) -> dict[str, int]:
    """Run one step and return {"parameters", "gradients", "optimizer", "activations": how many bytes each takes}.

    forward(*args) computes the tensor, or a list of tensors, from which the backward pass starts. The activations are
    what autograd keeps for it: inputs, outputs of layers, labels; a tensor that several operations keep is counted
    once. What lives only for a moment, such as the gradients of activations, is not counted. The optimizer,
    make_optimizer(params, lr=0.0), leaves the parameters as they are; their gradients are discarded. Of a sharded
    network, `d2lite.labs.chapter_13.bytes_on_rank` counts what one rank holds.

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
