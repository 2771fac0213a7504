"""The fastest mesh for a number of ranks, found by trying all, and in words why another one is slower."""

import math
from typing import Any

from d2lite.costs.alpha_beta import Cluster, Device, Link, as_cluster
from notebook_ranks.shared.checks import instance_of, non_negative_number, positive_int
from notebook_ranks.shared.format import format_bytes, format_seconds

from ..chapter_13.memory import MemoryModel
from .mesh_step import Mesh, MeshStep, bubble_parts, microbatches_per_replica, predict_mesh_step

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
    divisors = [n for n in range(1, num_ranks + 1) if num_ranks % n == 0]
    for pipe in divisors:
        for tensor in divisors:
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
        >>> mesh, step = fastest_mesh(model, 8, 32, Device(1e14), Link(5e-6, 1e11), 16e9)
        >>> print(mesh, f"{step.seconds:.3f} s")
        1 x 8 x 1 0.263 s
        >>> mesh, step = fastest_mesh(model, 8, 32, Device(1e14), Link(5e-6, 1e11), 3.5e9)
        >>> print(mesh, f"{step.seconds:.3f} s")
        2 x 2 x 2 0.306 s
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
        "data": "for the messages of data parallelism",
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
        "Activations": held.activations_n_bytes + held.loss_n_bytes,
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


def _ring_of(step: MeshStep, name: str) -> tuple[float, float, Link]:
    """Return how many messages the rings of a dimension send one after another, their bytes, and their link."""
    link, n_bytes = step.links[name], step.sent_n_bytes[name]
    if name == "data":
        return 2 * (step.mesh.data - 1), n_bytes, link
    latencies_s = step.tensor_s - n_bytes / link.bandwidth_bytes_per_s
    return latencies_s / link.latency_s if link.latency_s else 0.0, n_bytes, link


def _lost_in_rings(mine: MeshStep, best: MeshStep, name: str) -> dict[str, float]:
    """Return the seconds that rings lose by each difference; together they are the difference of their times."""
    messages, n_bytes, link = _ring_of(mine, name)
    best_messages, best_n_bytes, best_link = _ring_of(best, name)
    return {
        "speed": n_bytes / link.bandwidth_bytes_per_s - n_bytes / best_link.bandwidth_bytes_per_s,
        "latency": messages * (link.latency_s - best_link.latency_s),
        "bytes": (n_bytes - best_n_bytes) / best_link.bandwidth_bytes_per_s,
        "messages": (messages - best_messages) * best_link.latency_s,
    }


def _of_the_link(lost_s: dict[str, float], size: int, span: int, link: Link, cluster: Cluster) -> str:
    """Return why the link of groups of `size` ranks, which lie in blocks of `span` consecutive ranks, loses time."""
    is_late = lost_s["latency"] > lost_s["speed"]
    limit = "latency_s" if is_late else "bandwidth_bytes_per_s"
    if getattr(link, limit) == getattr(cluster.inside, limit):
        return f"groups of {size} have several ranks in a host, and the link there is slower than the network."
    if span > (cluster.per_host or span):
        lie = f"{size} ranks are" if size == span else f"its groups of {size} lie among {span} ranks in a row,"
        why = f"{lie} more than a host has ({cluster.per_host}), so they go over the network"
    else:
        why = f"blocks of {span} ranks do not fit evenly into hosts of {cluster.per_host}, so some go over the network"
    if is_late:
        return f"{why}. A {_one_by_one(size, link, cluster)}"
    ports = round(link.bandwidth_bytes_per_s / cluster.between.bandwidth_bytes_per_s)
    return f"{why}, each group through {'one port' if ports == 1 else f'{ports} ports'} per host."


def _one_by_one(size: int, link: Link, cluster: Cluster) -> str:
    whose = "its link" if link.latency_s == cluster.inside.latency_s else "the network"
    return (
        f"sum over {size} ranks takes {2 * (size - 1)} messages one after the other, each with the latency of {whose}."
    )


def _why_tensor(mine: MeshStep, best: MeshStep, cluster: Cluster) -> str:
    k, best_k, sent = mine.mesh.tensor, best.mesh.tensor, mine.sent_n_bytes["tensor"]
    lost_s = _lost_in_rings(mine, best, "tensor")
    if lost_s["speed"] + lost_s["latency"] >= max(lost_s["bytes"], lost_s["messages"]):
        return _of_the_link(lost_s, k, k, mine.links["tensor"], cluster)
    if lost_s["bytes"] >= lost_s["messages"]:
        return (
            f"{k} ranks share each layer, and a rank sends {format_bytes(sent)} in a step. The more ranks share a "
            "layer, the more each of them sends."
        )
    # on as many ranks the number of messages is proportional to k (k - 1) / microbatch
    if k * (k - 1) * mine.microbatch > best_k * (best_k - 1) * best.microbatch:
        return f"a {_one_by_one(k, mine.links['tensor'], cluster)}"
    return f"with microbatches of {mine.microbatch} there are many small all-reduces, each with its latency."


def _why_bubble(mine: MeshStep, best: MeshStep, cluster: Cluster) -> str:
    p, m, v = mine.mesh.pipe, mine.num_microbatches, mine.stages_per_rank
    n_bytes, best_n_bytes = (step.sent_n_bytes["pipe"] / (2 * step.num_microbatches * v) for step in (mine, best))
    idle, sent_s = bubble_parts(p, m, v, n_bytes, mine.links["pipe"])
    best_idle, best_sent_s = bubble_parts(best.mesh.pipe, best.num_microbatches, v, best_n_bytes, best.links["pipe"])
    lost_s = {  # together the difference of both bubbles
        "idle": (1 - best_idle / idle) * (mine.bubble_s - sent_s),
        "tensor": best_idle * (mine.tensor_s - best.tensor_s),
        "sent": sent_s - best_sent_s,
    }
    name = max(lost_s, key=lambda name: lost_s[name])
    if name == "idle":
        row = f"{p} ranks in a row with {m} microbatch{'es' if m > 1 else ''}"
        passes = m if v == 1 else f"({m} * {v})"
        return f"{row} are idle for ({p} - 1) / {passes} = {idle:.2g} times as long as their passes take."
    if name == "tensor":
        return "the passes wait for all-reduces of tensor parallelism, which makes the bubble longer, too."
    return (
        f"the first activations and the last gradient go through {p} ranks one after the other, in {2 * (p - 1)} "
        f"messages of {format_bytes(n_bytes)}, each with its latency."
    )


def _why_data(mine: MeshStep, best: MeshStep, cluster: Cluster) -> str:
    d, m = mine.mesh.data, mine.num_microbatches
    lost_s = _lost_in_rings(mine, best, "data")
    hidden_s, best_hidden_s = (  # behind the last of m microbatches
        messages * link.latency_s + n_bytes / link.bandwidth_bytes_per_s - step.data_s
        for step, (messages, n_bytes, link) in ((step, _ring_of(step, "data")) for step in (mine, best))
    )
    reasons = {
        "link": lost_s["speed"] + lost_s["latency"],
        "hidden": best_hidden_s - hidden_s,
        "bytes": lost_s["bytes"],
        "messages": lost_s["messages"],
    }
    name = max(reasons, key=lambda name: reasons[name])
    if name == "link":
        return _of_the_link(lost_s, d, d * mine.mesh.tensor, mine.links["data"], cluster)
    if name == "hidden":
        return (
            f"only the backward pass of the last microbatch hides a part of them, {format_seconds(hidden_s)} with {m} "
            "microbatches."
        )
    if name == "messages":
        return f"a {_one_by_one(d, mine.links['data'], cluster)}"
    return (
        f"with {d} replicas a rank sends {format_bytes(mine.sent_n_bytes['data'])}. The more replicas, the less pipe "
        "and tensor divide the gradients."
    )
