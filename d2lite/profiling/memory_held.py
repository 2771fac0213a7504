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
    what autograd keeps for it: inputs, outputs of layers, labels. Numbers that several operations keep are counted
    once, and of a larger tensor only those that an operation keeps: a shard of the minibatch is a view of it. What
    lives only for a moment, such as the gradients of activations, is not counted. The optimizer, make_optimizer(params,
    lr=0.0), leaves the parameters as they are; their gradients are discarded. Of a sharded network,
    `d2lite.labs.chapter_13.bytes_on_rank` counts what one rank holds.

    Example:
        >>> layer = torch.nn.Linear(3, 4)
        >>> bytes_held(layer.parameters(), layer, torch.zeros(5, 3), make_optimizer=torch.optim.SGD)
        {'parameters': 64, 'gradients': 64, 'optimizer': 0, 'activations': 60}
    """
    params = list(params)
    optimizer = make_optimizer(params, lr=0.0)
    kept: dict[int, set[tuple[int, int, int]]] = {}  # address of a storage -> begin, end and size of each view of it
    storages = []  # they stay alive, so that no address is used again

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage, begin = tensor.untyped_storage(), int(tensor.storage_offset()) * tensor.element_size()
        reach = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
        end = begin + (1 + reach) * tensor.element_size() if tensor.numel() else begin
        storages.append(storage)
        kept.setdefault(storage.data_ptr(), set()).add((begin, end, min(tensor.nbytes, end - begin)))
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
        "activations": sum(_n_bytes(views) for address, views in kept.items() if address not in own),
    }
    optimizer.zero_grad()
    return held


def _n_bytes(views: Iterable[tuple[int, int, int]]) -> int:
    """Return the bytes of views of one storage: the sum of their sizes, or what they cover together if that is less."""
    covered = last = 0
    for begin, end, _ in sorted(views):
        covered += max(0, end - max(begin, last))
        last = max(last, end)
    return min(covered, sum(size for _, _, size in views))
