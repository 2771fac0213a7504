"""The memory that a rank really uses in a step, as Linux counts it: to compare with a formula, and with a count."""

import gc
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from d2lite.transformer import Transformer
from d2lite.workers import Workers

from .zero import backward_on_shard, bytes_on_rank

__all__ = ["measured_memory", "measured_stages"]

# ranks keep the memory that they have freed, because that is faster; these two variables switch it off
FREEING = {"D2LITE_KEEP_MEMORY": "0", "MALLOC_MMAP_THRESHOLD_": "32768"}
Start = Callable[..., Sequence[torch.Tensor]]  # prepares a network, and returns the rank's momenta
Step = Callable[..., Any]  # step(net, momenta, X, y, lr=...)


def measured_stages(
    stages: Mapping[int, tuple[Start, Step]], width: int, X: torch.Tensor, y: torch.Tensor
) -> dict[int, tuple[int, int, int]]:
    """Return the three numbers of `measured_memory` for each stage, of rank 0 of two; nothing where there is no Linux.

    Args:
        stages: {stage: (start, step)}.
        width: of the `Transformer`.
        X: the tokens of the global minibatch.
        y: the characters that follow them.
    """
    if not Path("/proc/self/clear_refs").exists():
        return {}
    with patch.dict(os.environ, FREEING), Workers(2) as workers:
        workers.backend = "gloo"
        return {
            stage: workers.run(measured_memory, start, step, width, X, y)[0] for stage, (start, step) in stages.items()
        }


def measured_memory(start: Start, step: Step, width: int, X: torch.Tensor, y: torch.Tensor) -> tuple[int, int, int]:
    """Take a step on this rank, and return three numbers of bytes.

    They are what `bytes_on_rank` counts after a backward pass, and by how much the resident memory of the process has
    grown then, and at the peak of the step. It works on Linux, and the process must give freed memory back.

    Args:
        start: prepares a network, and returns the rank's momenta.
        step: a step, step(net, momenta, X, y, lr=...).
        width: of the `Transformer`.
        X: the tokens of the global minibatch.
        y: the characters that follow them.
    """
    _one_step(start, step, 32, X, y)  # a small network first: it loads what the first step needs
    gc.collect()
    before = _resident("VmRSS")
    counted, now, peak = _one_step(start, step, width, X, y)
    return counted, now - before, peak - before


def _one_step(start: Start, step: Step, width: int, X: torch.Tensor, y: torch.Tensor) -> tuple[int, int, int]:
    net = Transformer(width)
    momenta = start(net)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far, measure it from here on
    step(net, momenta, X, y, lr=0.1)
    peak = _resident("VmHWM")
    backward_on_shard(net, X, y)
    return sum(bytes_on_rank(net, momenta).values()), _resident("VmRSS"), peak


def _resident(name: str) -> int:
    """Return a row of the process's status in bytes: VmRSS is the memory now, VmHWM the peak."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):  # as in "VmRSS:    812345 kB"
            return 1024 * int(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no row {name}: the memory of a process can be read on Linux only.")
