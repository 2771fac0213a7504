"""A DTensor on pretend GPUs: its random numbers, and the shapes of its results."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed.tensor._op_schema as op_schema
import torch.distributed.tensor._random as tensor_random

from ddp_rehearsal.pretend_gpus.devices import replace

__all__ = ["pretend_sharded_tensors"]


class ShardedRandom(tensor_random.OffsetBasedRNGTracker):
    """Gives each shard its own random numbers, and copies of a shard the same.

    PyTorch's class counts in the state of a GPU's generator. The numbers are other ones than on GPUs.
    """

    def __init__(self, device_mesh: object, run_state_sync: bool = True) -> None:
        self._use_distribute_region = True

    @contextlib.contextmanager
    def _distribute_region(self, spec: Any, generator: Any = None) -> Iterator[None]:
        generator = generator or torch.default_generator
        seed = int(torch.randint(2**31, (), generator=generator, device="cpu"))  # the same on ranks with the same seed
        state = generator.get_state()
        shard = 0
        for n, coordinate, placement in zip(spec.mesh.shape, spec.mesh.get_coordinate(), spec.placements, strict=True):
            if placement.is_shard():
                shard = shard * n + coordinate
        generator.manual_seed(seed + shard)
        try:
            yield
        finally:
            generator.set_state(state)


def _on_cpu(spec: Any) -> torch.Tensor:
    """Return the fake tensor from which PyTorch reads shapes; on "cuda" it would ask for a driver."""
    meta = spec.tensor_meta
    return torch.empty_strided(meta.shape, meta.stride, dtype=meta.dtype, device="cpu")


def pretend_sharded_tensors() -> None:
    """Let functions of a DTensor on a mesh of GPUs, such as `normal_`, do without CUDA."""
    replace({"OffsetBasedRNGTracker": ShardedRandom}, tensor_random)
    replace({"_rebuild_tensor_from_dtensor_meta": _on_cpu}, op_schema)
