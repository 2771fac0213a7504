"""A real step of a network in stages, recorded."""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from d2lite.profiling import Recorder, merged_step
from d2lite.profiling.recorder import Moment
from d2lite.replica_threads import one_intra_op_thread
from d2lite.trace import Event

from .model_parallel import ModelParallel

__all__ = ["record_stages"]


def record_stages(net: ModelParallel, X: torch.Tensor, y: torch.Tensor, num_steps: int = 5) -> list[Event]:
    """Return when each stage computed in a forward and a backward pass of the minibatch X [b, ...], y [b].

    Each stage has a lane, and times are in seconds since the start of the pass. The passes before the last are slower
    at first, and are left out. On CPUs PyTorch computes in one thread. The gradients are added to those that are there.
    """
    recorder, last = Recorder(devices=net.devices), len(net.stages) - 1
    moments: dict[tuple[str, int], list[Moment]] = {}

    def read(kind: str, i: int) -> Callable[..., None]:
        return lambda *_: moments.setdefault((kind, i), []).append(recorder.mark(i))

    hooks = []
    for i, stage in enumerate(net.stages):
        hooks += [stage.register_forward_pre_hook(read("forward", i)), stage.register_forward_hook(read("forward", i))]
        hooks += [stage.register_full_backward_pre_hook(read("backward", i))]
        if i > 0:  # stage 0 computes no gradient of its input: its end is read after backward()
            hooks += [stage.register_full_backward_hook(read("backward", i))]
    try:
        with one_intra_op_thread(net.devices):
            for _ in range(num_steps):
                moments.clear()
                recorder.begin()
                F.cross_entropy(net(X), y.to(net.devices[last])).backward()
                read("backward", 0)()
                for (kind, i), (start, end) in moments.items():
                    recorder.add(kind, f"{kind}, stage {i}", start, end, lane=i)
                recorder.end()
    finally:
        for hook in hooks:
            hook.remove()
    return merged_step([recorder.steps])
