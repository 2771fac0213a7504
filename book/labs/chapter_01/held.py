"""The bytes that one device holds alone, and that each of two devices holds with each way to split, on the CPU."""

import torch
import torch.nn.functional as F
from torch import nn

from d2lite.profiling import bytes_held

from .partitioning import layers_of, stages
from .tensor_parallel import forward_in_parts, network_of

__all__ = ["held_in_all_ways"]

Held = dict[str, int]  # the bytes of each kind


def held_in_all_ways(net: nn.Sequential, X: torch.Tensor, y: torch.Tensor) -> dict[str, list[Held]]:
    """Return {way: what each device holds} for one device alone and for three ways to split over two devices.

    X [b, ...] and y [b] are the complete batch. Parameters, gradients, the state of Adam and the activations are
    counted while the network trains for a step, as `bytes_held` does.
    """
    return {
        "one device": [bytes_held(net.parameters(), _mean_loss, net, X, y)],
        "data": _held_with_data(net, X, y),
        "pipeline": _held_with_pipeline(net, X, y),
        "tensor": _held_with_tensor(net, X, y),
    }


def _held_with_pipeline(net: nn.Sequential, X: torch.Tensor, y: torch.Tensor) -> list[Held]:
    """Return what each of two stages holds."""
    cut = len(stages(layers_of(net, X), 2)[0])  # the number of layers on device 0
    first, second = net[:cut], net[cut:]
    h = first(X).detach().requires_grad_()  # what device 1 receives
    return [bytes_held(first.parameters(), first, X), bytes_held(second.parameters(), _mean_loss, second, h, y)]


def _mean_loss(net: nn.Module, X: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(net(X), y)


def _held_with_data(net: nn.Sequential, X: torch.Tensor, y: torch.Tensor) -> list[Held]:
    half = len(X) // 2
    of_each = bytes_held(net.parameters(), _mean_loss, net, X[:half], y[:half])  # all layers, half of the batch
    return [of_each, of_each]


def _held_with_tensor(net: nn.Sequential, X: torch.Tensor, y: torch.Tensor) -> list[Held]:
    """Run both halves in one program, and divide by two: the halves are equal."""
    nets = [network_of(net, 0, 2), network_of(net, 1, 2)]
    both = bytes_held([*nets[0].parameters(), *nets[1].parameters()], _mean_losses, nets, X, y)
    of_each = {kind: n_bytes // 2 for kind, n_bytes in both.items()}
    return [of_each, of_each]


def _mean_losses(nets: list[nn.Sequential], X: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    return [F.cross_entropy(logits, y.clone()) for logits in forward_in_parts(nets, X, ["cpu", "cpu"], ledger=[])]
