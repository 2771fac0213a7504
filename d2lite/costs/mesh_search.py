"""The fastest mesh for a number of ranks, found by trying all, and in words why another one is slower."""

import math
from typing import Any

from d2lite._checks import instance_of, non_negative_number, positive_int
from d2lite._format import format_bytes, format_seconds
from d2lite.costs.alpha_beta import Cluster, Device, Link, as_cluster
from d2lite.costs.memory import MemoryModel
from d2lite.costs.mesh_step import Mesh, MeshStep, microbatches_per_replica, predict_mesh_step

__all__ = ["fastest_mesh", "possible_meshes", "why_slower"]


def possible_meshes(
    num_ranks: int, model: MemoryModel, batch_size: int, microbatch: int = 1, stages_per_rank: int = 1
) -> list[Mesh]:
    """Return all meshes of exactly `num_ranks` ranks that `predict_mesh_step` accepts, whether they fit or not.

    Raises ValueError or TypeError for what is no positive whole number, and TypeError for another model.

    Example:
        >>> model = MemoryModel("small", 1e9, 2048, 24, 16, 1024, 50_000, "")
        >>> print(*possible_meshes(4, model, batch_size=2), sep=", ")
        1 x 1 x 4, 1 x 2 x 2, 2 x 1 x 2, 2 x 2 x 1, 4 x 1 x 1
    """
    instance_of("model", model, MemoryModel)
    positive_int("num_ranks", num_ranks)
    for name, number in (("batch_size", batch_size), ("microbatch", microbatch), ("stages_per_rank", stages_per_rank)):
        positive_int(name, number)
    meshes = []
    for pipe in range(1, num_ranks + 1):
        for tensor in range(1, num_ranks + 1):
            if num_ranks % (pipe * tensor) == 0:
                mesh = Mesh(pipe, num_ranks // (pipe * tensor), tensor)
                try:
                    microbatches_per_replica(model, mesh, batch_size, microbatch, stages_per_rank)
                except ValueError:
                    continue
                meshes.append(mesh)
    return sorted(meshes, key=lambda mesh: mesh.shape)


def fastest_mesh(
    model: MemoryModel,
    num_ranks: int,
    batch_size: int,
    device: Device,
    cluster: Cluster | Link,
    device_n_bytes: float,
    *,
    microbatch: int = 1,
    stages_per_rank: int = 1,
    **options: Any,
) -> tuple[Mesh, MeshStep] | None:
    """Return the mesh with the shortest predicted step of all that fit into the memory of a device, and its step.

    The arguments, `options` included, are those of `predict_mesh_step`. None says that no mesh fits.

    Args:
        model: The sizes of the transformer.
        num_ranks: How many ranks the mesh has.
        batch_size: Pieces of text in the minibatch of all ranks.
        device: How fast each rank computes.
        cluster: The links.
        device_n_bytes: The memory of a device, in bytes.
        microbatch: Pieces of text that go through a stage at a time.
        stages_per_rank: Stages of the pipeline on each rank.
        options: `overlap`, `stage`, `checkpointing`, `keep_scores`.

    Raises:
        ValueError: If a number is out of range.
        TypeError: If an argument has another type.

    Example:
        >>> model = MemoryModel("small", 1e9, 2048, 24, 16, 1024, 50_000, "")
        >>> mesh, step = fastest_mesh(model, 8, 8, Device(1e14), Link(5e-6, 1e11), 16e9)
        >>> print(mesh, f"{step.seconds:.3f} s")
        1 x 8 x 1 0.061 s
        >>> mesh, step = fastest_mesh(model, 8, 8, Device(1e14), Link(5e-6, 1e11), 6e9)
        >>> print(mesh, f"{step.seconds:.3f} s")
        2 x 2 x 2 0.104 s
    """
    non_negative_number("device_n_bytes", device_n_bytes)
    instance_of("device", device, Device)
    cluster = as_cluster(cluster)
    steps = [
        predict_mesh_step(
            *(model, mesh, batch_size, device, cluster),
            microbatch=microbatch,
            stages_per_rank=stages_per_rank,
            **options,
        )
        for mesh in possible_meshes(num_ranks, model, batch_size, microbatch, stages_per_rank)
    ]
    fitting = [step for step in steps if step.fits(device_n_bytes)]
    if not fitting:
        return None
    best = min(fitting, key=lambda step: step.seconds)
    return best.mesh, best


def why_slower(mine: MeshStep, best: MeshStep, cluster: Cluster | Link, device_n_bytes: float) -> str:
    """Return in a sentence or two why a step does not fit, or which term makes it slower than the fastest one, and why.

    The words have the times of the fastest step and nothing else of it: no number of ranks in any dimension.

    Args:
        mine: The step to explain.
        best: The fastest step that fits: of the same model, minibatch and device on as many ranks.
        cluster: The links of both.
        device_n_bytes: The memory of a device, in bytes.

    Raises:
        ValueError: If the steps differ in more than mesh and microbatch, or `device_n_bytes` is out of range.
        TypeError: If an argument has another type.
    """
    for name, step in (("mine", mine), ("best", best)):
        instance_of(name, step, MeshStep)
    cluster = as_cluster(cluster)
    alike = [
        (step.mesh.num_ranks, step.model_flops_per_gpu, step.compute_s, step.stages_per_rank) for step in (mine, best)
    ]
    if not all(math.isclose(*pair) for pair in zip(*alike, strict=True)):
        raise ValueError(
            "mine, best: expected steps that differ in mesh and microbatch alone, got others. "
            "Predict both with the same model, minibatch, device and options."
        )
    if not mine.fits(device_n_bytes):
        return _why_it_does_not_fit(mine, device_n_bytes)
    lost_s = {name: getattr(mine, f"{name}_s") - getattr(best, f"{name}_s") for name in ("tensor", "bubble", "data")}
    if mine.seconds <= best.seconds or math.isclose(mine.seconds, best.seconds):
        return f"No mesh that fits is faster: {format_seconds(mine.seconds)} per step, predicted."
    name = max(lost_s, key=lambda name: lost_s[name])
    waits_for = {
        "tensor": "for the all-reduces of tensor parallelism",
        "bubble": "in the bubble of the pipeline",
        "data": "for the all-reduce of gradients",
    }
    mine_s, best_s = (format_seconds(getattr(step, f"{name}_s")) for step in (mine, best))
    reason = {"tensor": _why_tensor, "bubble": _why_bubble, "data": _why_data}[name](mine, best, cluster)
    return f"It waits {mine_s} {waits_for[name]}, the fastest mesh {best_s}: {reason} All times are predicted."


def _why_it_does_not_fit(step: MeshStep, device_n_bytes: float) -> str:
    p, d, k = step.mesh.shape
    held, m = step.memory, step.num_microbatches
    parts = {
        "Parameters and gradients": held.parameters_n_bytes + held.gradients_n_bytes,
        "The numbers of the optimizer": held.optimizer_n_bytes,
        "Activations": held.activations_n_bytes,
    }
    name = max(parts, key=lambda name: parts[name])
    if name == "Activations":
        why = f"tensor divides them (here by {k}), data does not."
        why += " Smaller microbatches have less of them." if step.microbatch > 1 and m >= p else ""
        why += " The first stage of the pipeline holds those of several microbatches." if p > 1 and m > 1 else ""
    elif d > 1 and (name != "The numbers of the optimizer" or parts[name] > 5 * held.parameters_n_bytes):  # 6: stage 0
        why = f"each of the {d} replicas (data) has its own, and only pipe and tensor divide them."
    else:
        why = f"all ranks together hold them once, so no mesh of {step.mesh.num_ranks} ranks makes them less."
    total, device = format_bytes(held.total_n_bytes), format_bytes(device_n_bytes)
    return (
        f"It does not fit: a rank would hold {total} and has {device}, predicted. {name} are the largest part, "
        f"{format_bytes(parts[name])}: {why}"
    )


def _ring_seconds(num_messages: float, n_bytes: float, link: Link) -> float:
    """Return the time of rings that send so many messages one after another, with so many bytes in all."""
    return num_messages * link.latency_s + n_bytes / link.bandwidth_bytes_per_s


def _why_tensor(mine: MeshStep, best: MeshStep, cluster: Cluster) -> str:
    k, link, sent = mine.mesh.tensor, mine.links["tensor"], mine.sent_n_bytes["tensor"]
    latencies_s = mine.tensor_s - _ring_seconds(0, sent, link)
    on_its_link_s = _ring_seconds(latencies_s / link.latency_s if link.latency_s else 0, sent, best.links["tensor"])
    if mine.tensor_s - on_its_link_s > on_its_link_s - best.tensor_s:
        return _slower_link(k, k, link, cluster)
    if k > best.mesh.tensor:
        return (
            f"{k} ranks share each layer, and a rank sends {format_bytes(sent)} in a step. The more ranks share a "
            "layer, the more each of them sends."
        )
    return f"with microbatches of {mine.microbatch} there are many small all-reduces, each with its latency."


def _slower_link(size: int, span: int, link: Link, cluster: Cluster) -> str:
    """Return why groups of `size` ranks, which lie in blocks of `span` consecutive ranks, use this link."""
    if link == cluster.inside or cluster.per_host is None:
        return f"groups of {size} ranks lie in one host, and its link is slower than the network."
    lie = f"{size} ranks are" if size == span else f"its groups of {size} lie among {span} ranks in a row,"
    if span > cluster.per_host:
        return f"{lie} more than a host has ({cluster.per_host}), so they go over the network."
    return f"blocks of {span} ranks do not fit evenly into hosts of {cluster.per_host}, so some go over the network."


def _why_bubble(mine: MeshStep, best: MeshStep, cluster: Cluster) -> str:
    idle, best_idle = ((step.mesh.pipe - 1) / step.num_microbatches for step in (mine, best))
    p, m, v = mine.mesh.pipe, mine.num_microbatches, mine.stages_per_rank
    if idle > best_idle:
        return (
            f"{p} ranks in a row with {m} microbatches are idle for ({p} - 1) / {m if v == 1 else f'({m} * {v})'} = "
            f"{idle / v:.2g} times as long as their passes take."
        )
    if mine.tensor_s > best.tensor_s:
        return "the passes wait for all-reduces of tensor parallelism, which makes the bubble longer, too."
    return f"the first activations and the last gradient go through {p} ranks, in microbatches of {mine.microbatch}."


def _why_data(mine: MeshStep, best: MeshStep, cluster: Cluster) -> str:
    d, m, link, sent = mine.mesh.data, mine.num_microbatches, mine.links["data"], mine.sent_n_bytes["data"]
    mine_s = _ring_seconds(2 * (d - 1), sent, link)
    on_its_link_s = _ring_seconds(2 * (d - 1), sent, best.links["data"])
    best_s = _ring_seconds(2 * (best.mesh.data - 1), best.sent_n_bytes["data"], best.links["data"])
    hidden_s = mine_s - mine.data_s  # behind the last of m microbatches
    lost_s = {
        "link": mine_s - on_its_link_s,
        "sent": on_its_link_s - best_s,
        "hidden": hidden_s * m / best.num_microbatches - hidden_s,
    }
    name = max(lost_s, key=lambda name: lost_s[name])
    if name == "link":
        return _slower_link(d, d * mine.mesh.tensor, link, cluster)
    if name == "sent":
        return (
            f"with {d} replicas a rank sends {format_bytes(sent)}. The more replicas, the less pipe and tensor divide "
            "the gradients."
        )
    return f"only the backward pass of the last microbatch hides it, {format_seconds(hidden_s)} with {m} microbatches."
