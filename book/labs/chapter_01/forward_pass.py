"""One forward pass of a network, call by call: what each module reads and returns, and what it multiplies.

torch.utils.flop_counter.FlopCounterMode counts the same numbers (a test compares them), and is not used here because
it attaches its hooks to the modules of all threads: while another thread ran a network, 39 of 100 counts per module
were wrong, and a panel trains in a thread of its own. Its first use also loads sympy, which takes 1.5 s.
"""

from typing import Any, NamedTuple

import torch
from torch import nn

__all__ = ["forward_calls"]

SMALL = 2**26  # bytes of a network


class ModuleCall(NamedTuple):
    """One call of a module: its arguments, its output, and the multiplications of weights with inputs.

    `n_macs` is for all examples of the minibatch together, and 0 for all modules but nn.Conv2d and nn.Linear.
    """

    module: nn.Module
    args: tuple[Any, ...]
    output: Any
    n_macs: int


def forward_calls(
    net: nn.Module, X: torch.Tensor, kinds: type[nn.Module] | tuple[type[nn.Module], ...] = nn.Module
) -> list[ModuleCall]:
    """Return the calls of all modules of these `kinds` in a forward pass of a minibatch X, in the order of their ends.

    X is [b, ...]. Network and X may be on the device "meta": shapes without numbers. The list keeps the tensors alive.
    A small network on "meta" computes one example with zeros on the CPU: its first operators on "meta" would take 1.5 s
    and 0.15 GB, since PyTorch imports its compiler for them.
    """
    calls = []

    def note(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        n_macs = 0
        if isinstance(module, (nn.Conv2d, nn.Linear)):  # each number of the output sums over the weights of its channel
            n_macs = output.numel() * module.weight[0].numel()
        calls.append(ModuleCall(module, args, output, n_macs))

    hooks = [module.register_forward_hook(note) for module in net.modules() if isinstance(module, kinds)]
    try:
        with torch.no_grad():
            tensors = dict([*net.named_parameters(), *net.named_buffers()])
            if X.is_meta and len(X) == 1 and sum(t.nbytes for t in tensors.values()) <= SMALL:
                with torch.device("cpu"):  # of what the network makes in its forward pass, too
                    zeros = {name: torch.zeros(t.shape, dtype=t.dtype) for name, t in tensors.items()}
                    torch.func.functional_call(net, zeros, torch.zeros(X.shape, dtype=X.dtype))
            else:
                net(X)
    finally:
        for hook in hooks:
            hook.remove()
    return calls
