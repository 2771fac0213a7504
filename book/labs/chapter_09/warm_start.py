"""Warm starts: a network with fresh values, except for what it keeps of an earlier training."""

from collections.abc import Callable, Mapping

import torch
from torch import nn

from d2lite.models import init_all, small_net
from notebook_ranks.shared.checks import one_of

__all__ = ["KEPT", "start_net"]

# what a reset can leave -> which entries of the network's state those are: (entries of BatchNorm, of other layers)
KEPT = {
    "nothing": ("", ""),
    "running statistics": ("running", ""),
    "BatchNorm": ("all", ""),
    "weights": ("", "all"),
    "everything": ("all", "all"),
}


def start_net(
    seed: int,
    kept: str = "nothing",
    used: Mapping[str, torch.Tensor] | None = None,
    make: Callable[[], nn.Sequential] = small_net,
) -> nn.Sequential:
    """Return the small network with fresh values, except for what is kept of a network that was trained before.

    Args:
        seed: Decides the fresh values.
        kept: "nothing"; "running statistics"; "BatchNorm" (its running statistics, scales and shifts); "weights" (all
            but BatchNorm); or "everything".
        used: The `state_dict()` of the network that was trained before.
        make: Makes the network, if it is not the small one.

    Raises:
        ValueError: if `kept` is none of these, or something is kept and `used` is missing.
        TypeError: if `kept` is not a text.
    """
    batch_norm, others = KEPT[one_of("kept", kept, tuple(KEPT))]
    with torch.random.fork_rng(devices=[]):  # a layer draws values where it is made
        net = make()
    init_all(net, seed)
    if kept == "nothing":
        return net
    if used is None:
        raise ValueError(f"used: expected the state of a trained network, of which {kept} is kept, got None.")
    norms = {name for name, layer in net.named_modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)}
    state = net.state_dict()
    for entry in state:
        layer, name = entry.rsplit(".", 1)
        which = batch_norm if layer in norms else others
        if which == "all" or (which == "running" and name != "weight" and name != "bias"):
            state[entry] = used[entry]
    net.load_state_dict(state)
    return net
