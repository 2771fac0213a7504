"""A learner's formula for the seconds of a step on a mesh, beside the model."""

from collections.abc import Callable

from d2lite.costs.alpha_beta import Device, Link

from ..chapter_13.memory import MemoryModel
from .mesh_step import Mesh, predict_mesh_step

__all__ = ["compare_with_mesh_step"]

CASES = ((4, 16, 8), 371e9), ((16, 16, 2), 371e9), ((4, 16, 8), 48e9)  # meshes, and bytes per second of their links


def compare_with_mesh_step(
    my_step_s: Callable[[int, int, int, float], float | None], model: MemoryModel, batch_size: int, device: Device
) -> str:
    """Return my_step_s(pipe, data, tensor, link_bytes_per_s) beside the model without latency and the term data."""
    lines = []
    for shape, bandwidth in CASES:
        mine = my_step_s(*shape, bandwidth)
        if mine is None:
            return f"Not yet: {my_step_s.__name__} returns None. Fill it in, then run both cells again."
        step = predict_mesh_step(model, Mesh(*shape), batch_size, device, Link(0.0, bandwidth))
        right = step.seconds - step.data_s
        verdict = "within 2%" if abs(mine / right - 1) < 0.02 else "different"
        where = f"{step.mesh}, {bandwidth / 1e9:.0f} GB/s"
        lines.append(f"{where}: yours {mine:.2f} s, predicted {right:.2f} s: {verdict}")
    return "\n".join(lines)
